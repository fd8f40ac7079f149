"""What was learned of models, kept in the user's data folder."""

import stat

from lmagent.app.kept import TRAITS, KeptTraits


def test_what_was_learned_holds_for_that_model_on_that_server(tmp_path):
    KeptTraits(tmp_path, "http://a/v1/").constrain("m")
    KeptTraits(tmp_path, "http://a/v1").profile("m", {"window": 4096})
    again = KeptTraits(tmp_path, "http://a/v1")
    assert again.is_constrained("m")
    assert again.of("m").profile == {"window": 4096}
    assert not again.is_constrained("n")
    assert not KeptTraits(tmp_path, "http://b/v1").is_constrained("m")
    assert stat.S_IMODE((tmp_path / TRAITS).stat().st_mode) == 0o600


def test_it_holds_at_once_for_the_process_that_learned_it(tmp_path):
    traits = KeptTraits(tmp_path, "http://a")
    assert not traits.is_constrained("m")
    traits.constrain("m")
    assert traits.is_constrained("m")


def profiled(tmp_path, **profile):
    traits = KeptTraits(tmp_path, "http://a")
    traits.profile("m", profile)
    return traits


def test_a_model_that_called_nothing_when_examined_is_constrained_from_the_start(tmp_path):
    assert profiled(tmp_path, **{"tool calls": "none", "JSON schema": True}).is_constrained("m")
    assert not profiled(tmp_path, **{"tool calls": "structured", "JSON schema": True}).is_constrained("m")


def test_nothing_is_constrained_where_schemas_are_not_enforced(tmp_path):
    traits = profiled(tmp_path, **{"tool calls": "none", "JSON schema": False})
    traits.constrain("m")
    assert not traits.is_constrained("m")


def test_sight_and_speed_are_known_only_from_an_examination(tmp_path):
    traits = profiled(tmp_path, **{"vision": True, "reads tokens/s": 125.5})
    assert (traits.sees("m"), traits.reading("m")) == (True, 125.5)
    assert (traits.sees("n"), traits.reading("n")) == (None, None)
    odd = profiled(tmp_path, **{"vision": "yes", "reads tokens/s": "fast"})
    assert (odd.sees("m"), odd.reading("m")) == (None, None)


def test_a_damaged_file_and_a_folder_that_cannot_be_written_do_no_harm(tmp_path):
    (tmp_path / TRAITS).write_text("{ no json")
    traits = KeptTraits(tmp_path, "http://a")
    assert not traits.is_constrained("m")
    traits.constrain("m")
    assert KeptTraits(tmp_path, "http://a").is_constrained("m")
    (tmp_path / "file").write_text("")
    lost = KeptTraits(tmp_path / "file" / "below", "http://a")
    lost.constrain("m")
    assert lost.is_constrained("m")


def test_a_model_that_is_left_alone_again_is_so_in_later_sessions_unless_it_was_measured_otherwise(tmp_path):
    traits = KeptTraits(tmp_path, "http://a")
    traits.constrain("m")
    traits.free("m")
    assert not KeptTraits(tmp_path, "http://a").is_constrained("m")
    measured = profiled(tmp_path, **{"tool calls": "none", "JSON schema": True})
    measured.free("m")
    assert measured.is_constrained("m")
