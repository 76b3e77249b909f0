// What becomes of every command of a real server: by its flags no command that writes passes unjudged, and
// those of Redis 7.0 go the ways of ways.tsv, each of which was looked at by people.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/resp/command/command_rules.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::resp::test {
namespace {

using fenceguard::test::RedisServer;
using redis::Reply;

constexpr Permissions all_permissions{.unfenced = Unfenced::allow, .admin = true, .scripts = true};

struct Command {
  std::set<std::string> flags;
  std::vector<std::string> words;
};

const char* word_of(Way way) {
  constexpr const char* words[] = {"read", "write", "own", "script", "refused"};
  return words[static_cast<std::size_t>(way)];
}

void add_commands(const std::vector<Reply>& infos, std::map<std::string, Command>& all) {
  for (const auto& info : infos) {
    const auto& name = info.elements.at(0).text;
    Command command;
    for (const auto& flag : info.elements.at(2).elements) command.flags.insert(flag.text);
    std::stringstream parts{name};
    for (std::string part; std::getline(parts, part, '|');) command.words.push_back(part);
    all.emplace(name, std::move(command));
    add_commands(info.elements.at(9).elements, all);
  }
}

std::map<std::string, std::pair<std::string, std::string>> looked_at() {
  std::ifstream file{FENCEGUARD_SOURCE_DIR "/tests/resp/ways.tsv"};
  std::map<std::string, std::pair<std::string, std::string>> ways;
  std::string name, usual, permitted;
  std::getline(file, name);
  while (file >> name >> usual >> permitted) ways[name] = {usual, permitted};
  return ways;
}

class Ways : public testing::Test {
 protected:
  Ways() {
    const auto answer = server_.call({"COMMAND"});
    table_.learn(answer);
    add_commands(answer.elements, commands_);
  }

  Way way_of(const Command& command, const Permissions& permissions) {
    const std::vector<std::string_view> words{command.words.begin(), command.words.end()};
    const auto* facts = table_.find(words);
    if (facts == nullptr) throw std::runtime_error("not in the table: " + command.words.front());
    return rule_for(*facts, words, permissions).way;
  }

  RedisServer server_;
  redis::CommandTable table_;
  std::map<std::string, Command> commands_;
};

TEST_F(Ways, NoCommandThatWritesPassesUnjudged) {
  ASSERT_GT(commands_.size(), 300u);
  std::size_t writers = 0;
  for (const auto& [name, command] : commands_) {
    const auto& flags = command.flags;
    const auto usual = way_of(command, {});
    const auto permitted = way_of(command, all_permissions);
    if (flags.contains("write")) {
      ++writers;
      EXPECT_TRUE(usual == Way::write || usual == Way::refused) << name << " goes " << word_of(usual);
      EXPECT_NE(permitted, Way::read) << name;
    }
    if (flags.contains("admin")) {
      EXPECT_EQ(usual, Way::refused) << name;
      EXPECT_NE(permitted, Way::read) << name;
    }
    const bool is_script = name.starts_with("eval") || name.starts_with("fcall");
    if (is_script) {
      EXPECT_EQ(usual, Way::refused) << name;
      EXPECT_EQ(permitted, Way::script) << name;
    }
    // No command writes that neither says so nor was looked at.
    const bool passes = usual == Way::read || usual == Way::own;
    if (passes && !flags.contains("readonly")) {
      EXPECT_TRUE(looked_at().contains(name)) << name;
    }
  }
  EXPECT_GT(writers, 100u);
}

TEST_F(Ways, CommandsGoTheWaysThatWereLookedAt) {
  const auto ways = looked_at();
  ASSERT_GT(ways.size(), 300u);
  std::size_t met = 0;
  for (const auto& [name, command] : commands_) {
    const auto expected = ways.find(name);
    if (expected == ways.end()) continue;  // of a newer server
    ++met;
    EXPECT_EQ(word_of(way_of(command, {})), expected->second.first) << name;
    EXPECT_EQ(word_of(way_of(command, all_permissions)), expected->second.second) << name << ", permitted";
  }
  EXPECT_GT(met, 300u);
}

}  // namespace
}  // namespace fenceguard::resp::test
