"""Prints the C++ of the pages as one program: 'page_code NAME URL' runs one block and says how it ended. Every URL that a
page writes stands for that one, and … for break."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
URL = re.compile(r'"\w+://[^"]*"')
LEASE = """auto source = open_source(url);
auto lease = source->acquire(Resource{"accounts/42"}, {.ttl = 10s});
if (!lease) return busy;
"""
CONNECTION = "pqxx::connection connection{url};"
RULED = "return to_string(ruling.verdict);"
WRITTEN = "return to_string(written.ruling.verdict);"
# NAME: its page, which of the page's blocks it is, what stands before it and behind.
BLOCKS = {
    "readme": ("README.md", 0, CONNECTION, RULED),
    "redis": ("docs/redis.md", 0, "", WRITTEN),
    "zookeeper": ("docs/zookeeper.md", 0, LEASE, WRITTEN),
    "etcd": ("docs/etcd.md", 0, LEASE, WRITTEN),
    "transaction": ("docs/postgres/library.md", 0, CONNECTION + LEASE, RULED),
    "versioned": ("docs/postgres/library.md", 1, CONNECTION + LEASE + "const Claim claim = lease->claim();",
                  "return to_string(done.verdict);"),
}

PROGRAM = """#include <chrono>
#include <cstdio>
#include <map>
#include <pqxx/pqxx>
#include <string>

#include "adapters/etcd/guard.hpp"
#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/postgres/versioned_table.hpp"
#include "adapters/redis/guard.hpp"
#include "adapters/schemes.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

constexpr auto busy = "busy";
constexpr auto refused = "refused";
"""


def code(page, number):
    found = re.findall(r"^```cpp\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    text = URL.sub("url", found[number]).replace("…", "break;")
    return re.sub(r"\breturn;", "return refused;", text)


def main():
    print(PROGRAM)
    for name, (page, number, before, behind) in BLOCKS.items():
        print(f"std::string run_{name}(const std::string& url) {{\n{before}\n{code(page, number)}\n{behind}\n}}\n")
    table = ", ".join(f'{{"{name}", run_{name}}}' for name in BLOCKS)
    print(f"""}}  // namespace

int main(int argc, char** argv) {{
  const std::map<std::string, std::string (*)(const std::string&)> blocks{{{table}}};
  if (argc != 3 || !blocks.contains(argv[1])) return 2;
  std::puts(blocks.at(argv[1])(argv[2]).c_str());
}}""")


if __name__ == "__main__":
    main()
