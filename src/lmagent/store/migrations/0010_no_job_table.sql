-- Jobs are found in the logs and the files of the schedule.
DROP TABLE job;
