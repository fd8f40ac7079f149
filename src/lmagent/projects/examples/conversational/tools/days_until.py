from datetime import date


def days_until(day: str) -> int:
    """Count the days from today until a day, such as 2030-01-31."""
    return (date.fromisoformat(day) - date.today()).days
