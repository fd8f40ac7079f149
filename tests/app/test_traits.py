"""What was learned of models, kept in the user's data folder."""

import stat

from lmagent.app.traits import FILE, KeptTraits


def test_what_was_learned_holds_for_that_model_on_that_server(tmp_path):
    KeptTraits(tmp_path, "http://a/v1/").constrain("m")
    KeptTraits(tmp_path, "http://a/v1").profile("m", {"window": 4096})
    again = KeptTraits(tmp_path, "http://a/v1")
    assert again.is_constrained("m")
    assert again.of("m").profile == {"window": 4096}
    assert not again.is_constrained("n")
    assert not KeptTraits(tmp_path, "http://b/v1").is_constrained("m")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_it_holds_at_once_for_the_process_that_learned_it(tmp_path):
    traits = KeptTraits(tmp_path, "http://a")
    assert not traits.is_constrained("m")
    traits.constrain("m")
    assert traits.is_constrained("m")


def test_a_damaged_file_and_a_folder_that_cannot_be_written_do_no_harm(tmp_path):
    (tmp_path / FILE).write_text("{ no json")
    traits = KeptTraits(tmp_path, "http://a")
    assert not traits.is_constrained("m")
    traits.constrain("m")
    assert KeptTraits(tmp_path, "http://a").is_constrained("m")
    (tmp_path / "file").write_text("")
    lost = KeptTraits(tmp_path / "file" / "below", "http://a")
    lost.constrain("m")
    assert lost.is_constrained("m")
