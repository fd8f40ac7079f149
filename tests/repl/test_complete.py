from lmagent.repl.complete import matching_paths


def test_paths_that_begin_with_the_text_come_first_and_hidden_stores_are_left_out(tmp_path):
    for name in ("src/app.py", "app.md", "docs/map.md", ".git/app", ".lmagent/app", "node_modules/app.js"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert matching_paths(tmp_path, "app") == ["app.md", "src/app.py"]
    assert matching_paths(tmp_path, "ap.m") == ["docs/map.md"]
    assert matching_paths(tmp_path, "", limit=2) == ["app.md", "docs/map.md"]
