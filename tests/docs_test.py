"""The documents: every link leads somewhere, the README stays short, and each page of docs/ is reached from it."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
OURS = re.compile(r"\b(claims?|fences?|floor|lanes?|settle time|quarantined?)\b")
README_LINES_MAX = 200


def pages():
    folders = ("adapters", "bench", "clients", "demo", "deploy", "docs", "examples", "guard", "packaging", "scripts", "server", "sql",
               "tests")
    return sorted(ROOT.glob("*.md")) + [page for folder in folders for page in sorted((ROOT / folder).rglob("*.md"))]


def links(page):
    """(file, anchor or None) of every link that stays in the tree."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [((page.parent / name).resolve() if name else page, anchor) for name, anchor in LINK.findall(text)]


def anchors(page):
    text = page.read_text()
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | \
        set(re.findall(r'<a id="([^"]+)">', text))


class Documents(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        dead = [f"{page.relative_to(ROOT)}: {target}" for page in pages() for target, anchor in links(page)
                if not target.exists() or (anchor and anchor not in anchors(target))]
        self.assertEqual(dead, [])

    def test_the_readme_is_short_and_leads_to_every_page(self):
        readme = ROOT / "README.md"
        self.assertLessEqual(len(readme.read_text().splitlines()), README_LINES_MAX)
        reached = {target for target, _ in links(readme)}
        self.assertEqual([page.name for page in sorted((ROOT / "docs").glob("*.md")) if page not in reached], [])

    def test_a_page_that_uses_our_words_leads_to_the_glossary(self):
        glossary = ROOT / "docs" / "glossary.md"
        self.assertEqual([page.name for page in sorted((ROOT / "docs").rglob("*.md"))
                          if page != glossary and OURS.search(re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(),
                                                                     flags=re.MULTILINE | re.DOTALL))
                          and glossary not in {target for target, _ in links(page)}], [])


if __name__ == "__main__":
    unittest.main()
