#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "tests/redis/guard/space.hpp"

namespace fenceguard::test {
namespace {

using redis::Command;
using redis::Reply;
using testing::Test;

class GuardCommands : public Test {
 protected:
  GuardCommands() { init_namespace(server_); }

  Reply write(const Command& command) {
    const auto written = guard_.write(claim_of(7), command);
    EXPECT_EQ(written.ruling.verdict, Verdict::admitted);
    EXPECT_EQ(written.replies.size(), 1u);
    return written.replies.at(0);
  }

  std::string refusal(const Command& command) {
    const auto fault = fault_of_call([&] { return guard_.write(claim_of(7), command); });
    EXPECT_EQ(fault.kind, FaultKind::invalid_input) << fault.message;
    return fault.message;
  }

  RedisServer server_;
  redis::Client client_{server_.url()};
  redis::Guard guard_{client_};
};

// A command that writes, and a form of it that would be guarded, or nothing where none may be.
const std::map<std::string, Command> known_writers{
    {"append", {"APPEND", "{r}a", "x"}},
    {"bitfield", {"BITFIELD", "{r}a", "SET", "u8", "0", "1"}},
    {"bitop", {"BITOP", "NOT", "{r}a", "{r}b"}},
    {"blmove", {}},
    {"blmpop", {}},
    {"blpop", {}},
    {"brpop", {}},
    {"brpoplpush", {}},
    {"bzmpop", {}},
    {"bzpopmax", {}},
    {"bzpopmin", {}},
    {"copy", {"COPY", "{r}a", "{r}b", "REPLACE"}},
    {"decr", {"DECR", "{r}n"}},
    {"decrby", {"DECRBY", "{r}n", "2"}},
    {"del", {"DEL", "{r}a", "{r}b"}},
    {"expire", {"EXPIRE", "{r}a", "9"}},
    {"expireat", {"EXPIREAT", "{r}a", "9999999999"}},
    {"flushall", {}},
    {"flushdb", {}},
    {"function|delete", {}},
    {"function|flush", {}},
    {"function|load", {}},
    {"function|restore", {}},
    {"geoadd", {"GEOADD", "{r}g", "1", "1", "a"}},
    {"georadius", {"GEORADIUS", "{r}g", "1", "1", "9", "km", "STORE", "{r}z2"}},
    {"georadiusbymember", {"GEORADIUSBYMEMBER", "{r}g", "a", "9", "km", "STORE", "{r}z2"}},
    {"geosearchstore", {"GEOSEARCHSTORE", "{r}z2", "{r}g", "FROMMEMBER", "a", "BYRADIUS", "9", "km"}},
    {"getdel", {"GETDEL", "{r}a"}},
    {"getex", {"GETEX", "{r}a", "EX", "9"}},
    {"getset", {"GETSET", "{r}a", "x"}},
    {"hdel", {"HDEL", "{r}h", "f"}},
    {"hincrby", {"HINCRBY", "{r}h", "n", "1"}},
    {"hincrbyfloat", {"HINCRBYFLOAT", "{r}h", "n", "1.5"}},
    {"hmset", {"HMSET", "{r}h", "f", "x"}},
    {"hset", {"HSET", "{r}h", "f", "x"}},
    {"hsetnx", {"HSETNX", "{r}h", "f", "x"}},
    {"incr", {"INCR", "{r}n"}},
    {"incrby", {"INCRBY", "{r}n", "2"}},
    {"incrbyfloat", {"INCRBYFLOAT", "{r}n", "1.5"}},
    {"linsert", {"LINSERT", "{r}l", "BEFORE", "a", "b"}},
    {"lmove", {"LMOVE", "{r}l", "{r}l", "LEFT", "RIGHT"}},
    {"lmpop", {"LMPOP", "1", "{r}l", "LEFT"}},
    {"lpop", {"LPOP", "{r}l"}},
    {"lpush", {"LPUSH", "{r}l", "x"}},
    {"lpushx", {"LPUSHX", "{r}l", "x"}},
    {"lrem", {"LREM", "{r}l", "0", "x"}},
    {"lset", {"LSET", "{r}l", "0", "x"}},
    {"ltrim", {"LTRIM", "{r}l", "0", "1"}},
    {"migrate", {}},
    {"move", {}},
    {"mset", {"MSET", "{r}a", "1", "{r}b", "2"}},
    {"msetnx", {"MSETNX", "{r}a", "1", "{r}b", "2"}},
    {"persist", {"PERSIST", "{r}a"}},
    {"pexpire", {"PEXPIRE", "{r}a", "9000"}},
    {"pexpireat", {"PEXPIREAT", "{r}a", "9999999999000"}},
    {"pfadd", {"PFADD", "{r}p", "x"}},
    {"pfdebug", {}},
    {"pfmerge", {"PFMERGE", "{r}p", "{r}p2"}},
    {"psetex", {"PSETEX", "{r}a", "9000", "x"}},
    {"rename", {"RENAME", "{r}a", "{r}b"}},
    {"renamenx", {"RENAMENX", "{r}a", "{r}b"}},
    {"restore", {"RESTORE", "{r}q", "0", "x"}},
    {"restore-asking", {}},
    {"rpop", {"RPOP", "{r}l"}},
    {"rpoplpush", {"RPOPLPUSH", "{r}l", "{r}l2"}},
    {"rpush", {"RPUSH", "{r}l", "x"}},
    {"rpushx", {"RPUSHX", "{r}l", "x"}},
    {"sadd", {"SADD", "{r}s", "x"}},
    {"sdiffstore", {"SDIFFSTORE", "{r}s2", "{r}s", "{r}s3"}},
    {"set", {"SET", "{r}a", "x"}},
    {"setbit", {"SETBIT", "{r}a", "7", "1"}},
    {"setex", {"SETEX", "{r}a", "9", "x"}},
    {"setnx", {"SETNX", "{r}a", "x"}},
    {"setrange", {"SETRANGE", "{r}a", "1", "x"}},
    {"sinterstore", {"SINTERSTORE", "{r}s2", "{r}s", "{r}s3"}},
    {"smove", {"SMOVE", "{r}s", "{r}s2", "x"}},
    {"sort", {"SORT", "{r}l", "ALPHA", "STORE", "{r}l2"}},
    {"spop", {"SPOP", "{r}s"}},
    {"srem", {"SREM", "{r}s", "x"}},
    {"sunionstore", {"SUNIONSTORE", "{r}s2", "{r}s", "{r}s3"}},
    {"swapdb", {}},
    {"unlink", {"UNLINK", "{r}a"}},
    {"xack", {"XACK", "{r}x", "g", "1-1"}},
    {"xadd", {"XADD", "{r}x", "*", "f", "v"}},
    {"xautoclaim", {"XAUTOCLAIM", "{r}x", "g", "c", "0", "0"}},
    {"xclaim", {"XCLAIM", "{r}x", "g", "c", "0", "1-1"}},
    {"xdel", {"XDEL", "{r}x", "1-1"}},
    {"xgroup|create", {"XGROUP", "CREATE", "{r}x", "g", "0", "MKSTREAM"}},
    {"xgroup|createconsumer", {"xgroup", "createconsumer", "{r}x", "g", "c"}},
    {"xgroup|delconsumer", {"XGROUP", "DELCONSUMER", "{r}x", "g", "c"}},
    {"xgroup|destroy", {"XGROUP", "DESTROY", "{r}x", "g"}},
    {"xgroup|setid", {"XGROUP", "SETID", "{r}x", "g", "0"}},
    {"xreadgroup", {"XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "{r}x", ">"}},
    {"xsetid", {"XSETID", "{r}x", "9-9"}},
    {"xtrim", {"XTRIM", "{r}x", "MAXLEN", "1"}},
    {"zadd", {"ZADD", "{r}z", "1", "x"}},
    {"zdiffstore", {"ZDIFFSTORE", "{r}z2", "2", "{r}z", "{r}z3"}},
    {"zincrby", {"ZINCRBY", "{r}z", "1", "x"}},
    {"zinterstore", {"ZINTERSTORE", "{r}z2", "2", "{r}z", "{r}z3"}},
    {"zmpop", {"ZMPOP", "1", "{r}z", "MIN"}},
    {"zpopmax", {"ZPOPMAX", "{r}z"}},
    {"zpopmin", {"ZPOPMIN", "{r}z"}},
    {"zrangestore", {"ZRANGESTORE", "{r}z2", "{r}z", "0", "-1"}},
    {"zrem", {"ZREM", "{r}z", "x"}},
    {"zremrangebylex", {"ZREMRANGEBYLEX", "{r}z", "-", "+"}},
    {"zremrangebyrank", {"ZREMRANGEBYRANK", "{r}z", "0", "1"}},
    {"zremrangebyscore", {"ZREMRANGEBYSCORE", "{r}z", "0", "1"}},
    {"zunionstore", {"ZUNIONSTORE", "{r}z2", "2", "{r}z", "{r}z3"}},
};

// Adds the names of the commands in an answer to COMMAND that write.
void collect_writers(const Reply& commands, std::vector<std::string>& names) {
  for (const auto& command : commands.elements) {
    const auto& flags = command.elements.at(2).elements;
    if (std::ranges::any_of(flags, [](const Reply& flag) { return flag.text == "write"; }))
      names.push_back(command.elements.at(0).text);
    if (command.elements.size() > 9) collect_writers(command.elements[9], names);
  }
}

// Shows that every command of this server that writes was looked at: where a new version of Redis adds
// one, this fails until it was looked at too. Each that is guarded is written with, then with each of its
// keys replaced by one of another resource, which must be refused.
TEST_F(GuardCommands, EveryCommandThatWritesWasLookedAtAndWritesNothingButItsKeys) {
  std::vector<std::string> names;
  collect_writers(server_.call({"COMMAND"}), names);
  EXPECT_EQ(names.size(), known_writers.size());
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    const auto found = known_writers.find(name);
    ASSERT_TRUE(found != known_writers.end()) << "look at this command: can it write outside of its keys?";
    const auto& command = found->second;
    if (command.empty()) {
      const auto bar = name.find('|');
      Command call{name.substr(0, bar)};
      if (bar != name.npos) call.push_back(name.substr(bar + 1));
      for (int i = 0; i < 6; ++i) call.emplace_back("{r}a");
      refusal(call);
      continue;
    }
    write(command);
    for (std::size_t i = 0; i < command.size(); ++i) {
      if (!command[i].starts_with("{r}")) continue;
      auto other = command;
      other[i] = "{s}" + command[i];
      EXPECT_NE(refusal(other).find("the resource 's'"), std::string::npos);
      other[i] = "fenceguard:{r}";
      EXPECT_NE(refusal(other).find("fenceguard's own"), std::string::npos);
    }
  }
  for (const auto& key : server_.call({"KEYS", "*"}).elements)
    EXPECT_TRUE(key.text.starts_with("{r}") || key.text.starts_with("fenceguard:")) << key.text;
  EXPECT_EQ(server_.call({"INFO", "keyspace"}).text.find("db1:"), std::string::npos);
}

// Of an option that is given twice Redis takes the last, and names the first as a key.
TEST_F(GuardCommands, ACommandWhoseKeysCouldBeReadInTwoWaysIsRefused) {
  write({"GEOADD", "{r}g", "1", "1", "a"});
  write({"RPUSH", "{r}l", "1"});
  for (const Command& command :
       {Command{"GEORADIUS", "{r}g", "1", "1", "9", "km", "STORE", "{r}a", "STORE", "{s}b"},
        Command{"GEORADIUS", "{r}g", "1", "1", "9", "km", "storedist", "{r}a", "STOREDIST", "{s}b"},
        Command{"GEORADIUSBYMEMBER", "{r}g", "a", "9", "km", "STORE", "{r}a", "store", "{s}b"},
        Command{"SORT", "{r}l", "STORE", "{r}a", "STORE", "{s}b"},
        Command{"SORT", "{r}l", "BY", "STORE", "STORE", "{s}b"},
        Command{"XREADGROUP", "COUNT", "1", "GROUP", "STREAMS", "{r}c", "STREAMS", "{s}x", ">"}}) {
    EXPECT_NE(refusal(command).find("more than once"), std::string::npos) << command.front();
  }
  EXPECT_EQ(server_.call({"KEYS", "*b"}).elements.size(), 0u);
}

std::string with_nul(const std::string& word) {
  return word + '\0' + "x";
}

// Redis compares the words of options up to their first NUL.
TEST_F(GuardCommands, WhatStandsBehindTheNulOfAnOptionHidesItNot) {
  write({"RPUSH", "{r}l", "1"});
  write({"GEOADD", "{r}g", "1", "1", "a"});
  write({"XADD", "{r}x", "1-1", "f", "v"});
  write({"XGROUP", "CREATE", "{r}x", "g", "0"});
  for (const Command& command :
       {Command{"SORT", "{r}l", with_nul("STORE"), "{s}b"},
        Command{"GEORADIUS", "{r}g", "1", "1", "9", "km", with_nul("store"), "{s}b"},
        Command{"GEORADIUSBYMEMBER", "{r}g", "a", "9", "km", with_nul("STOREDIST"), "{s}b"},
        Command{"XREADGROUP", "GROUP", "g", "c", with_nul("STREAMS"), "{s}x", ">"}})
    EXPECT_NE(refusal(command).find("the resource 's'"), std::string::npos) << command.front();
  EXPECT_NE(refusal({"SORT", "{r}l", with_nul("STORE"), "fenceguard:{r}"}).find("fenceguard's own"),
            std::string::npos);
  EXPECT_NE(refusal({"SORT", "{r}l", "STORE", "{r}a", with_nul("STORE"), "{s}b"}).find("more than once"),
            std::string::npos);
  EXPECT_NE(refusal({"COPY", "{r}l", "{r}k", with_nul("DB"), "1"}).find("another database"),
            std::string::npos);
  for (const auto* option : {"BY", "GET"})
    EXPECT_NE(refusal({"SORT", "{r}l", with_nul(option), "fenceguard:*->holder"}).find("pattern"),
              std::string::npos);
  for (const Command& command :
       {Command{"XREAD", with_nul("BLOCK"), "1", "STREAMS", "{r}x", "$"},
        Command{"XREADGROUP", "GROUP", "g", "c", with_nul("block"), "1", with_nul("STREAMS"), "{r}x", ">"}})
    EXPECT_NE(refusal(command).find("without BLOCK"), std::string::npos) << command.front();
  EXPECT_EQ(server_.call({"KEYS", "{s}*"}).elements.size(), 0u);
  EXPECT_EQ(server_.call({"INFO", "keyspace"}).text.find("db1:"), std::string::npos);
}

// Forms of commands that read, where their keys do not simply begin at a fixed place.
const std::vector<Command> known_readers{
    {"EXISTS", "{r}a", "{r}b"},
    {"GET", "{r}a"},
    {"GEORADIUS", "{r}g", "1", "1", "9", "km", "COUNT", "3"},
    {"LCS", "{r}a", "{r}b", "LEN"},
    {"MGET", "{r}a", "{r}b", "{r}c"},
    {"OBJECT", "ENCODING", "{r}a"},
    {"SINTERCARD", "2", "{r}a", "{r}b", "LIMIT", "2"},
    {"SORT_RO", "{r}l", "LIMIT", "0", "1", "ALPHA"},
    {"XINFO", "STREAM", "{r}x"},
    {"XREAD", "COUNT", "1", "STREAMS", "{r}x", "{r}y", "0", "0"},
    {"ZDIFF", "2", "{r}a", "{r}b", "WITHSCORES"},
    {"ZINTERCARD", "2", "{r}a", "{r}b"},
    {"ZUNION", "3", "{r}a", "{r}b", "{r}c", "WEIGHTS", "1", "2", "3"},
};

// Shows: where both this table and COMMAND GETKEYS of the server tell a command's keys, they are the same.
// How: forms of every known command, then the same with words left out, repeated, added and exchanged.
TEST_F(GuardCommands, TheKeysAreThoseThatTheServerNames) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  redis::CommandTable table;
  const redis::CommandTable::Ask ask = [&](redis::Arguments words) {
    return server_.call({words.begin(), words.end()});
  };
  const auto keys_here = [&](const Command& command) -> std::optional<std::vector<std::string>> {
    try {
      const auto keys = keys_of(table.facts(ask, command), command);
      return std::vector<std::string>{keys.begin(), keys.end()};
    } catch (const InvalidInput&) {
      return std::nullopt;
    }
  };
  const auto keys_there = [&](const Command& command) -> std::optional<std::vector<std::string>> {
    std::vector<std::string> words{"COMMAND", "GETKEYS"};
    words.insert(words.end(), command.begin(), command.end());
    const auto reply = server_.call(words);
    if (reply.is_error()) return std::nullopt;
    std::vector<std::string> keys;
    for (const auto& key : reply.elements) keys.push_back(key.text);
    return keys;
  };
  auto forms = known_readers;
  for (const auto& [name, command] : known_writers) {
    if (!command.empty()) forms.push_back(command);
  }
  for (const auto& form : forms) {
    const auto here = keys_here(form);
    ASSERT_TRUE(here) << form.front();
    EXPECT_EQ(here, keys_there(form)) << form.front();
  }
  const std::vector<std::string> words{"STORE",
                                       "STREAMS",
                                       "STOREDIST",
                                       "0",
                                       "1",
                                       "2",
                                       "99",
                                       "{r}k",
                                       "x",
                                       "BY",
                                       with_nul("STORE"),
                                       with_nul("BY"),
                                       with_nul("STREAMS"),
                                       with_nul("storedist")};
  int told_by_both = 0;
  for (int round = 0; round < 4'000; ++round) {
    auto command = forms[random() % forms.size()];
    const auto place = [&] {
      return command.begin() + 1 + static_cast<std::ptrdiff_t>(random() % (command.size() - 1));
    };
    for (auto changes = 1 + random() % 3; changes > 0 && command.size() > 2; --changes) {
      switch (random() % 4) {
        case 0:
          command.erase(place());
          break;
        case 1:
          command.insert(place(), words[random() % words.size()]);
          break;
        case 2:
          *place() = words[random() % words.size()];
          break;
        default:
          command.push_back(words[random() % words.size()]);
      }
    }
    const auto here = keys_here(command);
    const auto there = keys_there(command);
    if (!here || !there) continue;
    ++told_by_both;
    if (command.front().starts_with(
            "SORT")) {  // a pattern named STORE is taken for the option: that is stricter
      for (const auto& key : *there) EXPECT_NE(std::ranges::find(*here, key), here->end());
      continue;
    }
    EXPECT_EQ(here, there) << fmt::format("{}", fmt::join(command, " "));
  }
  EXPECT_GT(told_by_both, 1'000);
}

TEST_F(GuardCommands, WhatWouldWriteInAnotherDatabaseIsRefused) {
  write({"SET", "{r}a", "1"});
  for (const Command& command : {Command{"MOVE", "{r}a", "1"}, Command{"COPY", "{r}a", "{r}b", "DB", "1"},
                                 Command{"copy", "{r}a", "{r}b", "REPLACE", "db", "1"},
                                 Command{"MIGRATE", "127.0.0.1", "1", "{r}a", "1", "9"}}) {
    EXPECT_NE(refusal(command).find("another database"), std::string::npos);
  }
}

TEST_F(GuardCommands, WhatBlocksIsRefusedWithTheFormThatDoesNot) {
  write({"XADD", "{r}x", "1-1", "f", "v"});
  write({"XGROUP", "CREATE", "{r}x", "BLOCK", "0"});
  const std::vector<std::pair<Command, std::string>> blocking{
      {{"BLMOVE", "{r}l", "{r}k", "LEFT", "LEFT", "0"}, "LMOVE"},
      {{"BLMPOP", "0", "1", "{r}l", "LEFT"}, "LMPOP"},
      {{"BLPOP", "{r}l", "0"}, "LPOP"},
      {{"brpop", "{r}l", "0"}, "RPOP"},
      {{"BRPOPLPUSH", "{r}l", "{r}k", "0"}, "RPOPLPUSH"},
      {{"BZMPOP", "0", "1", "{r}z", "MIN"}, "ZMPOP"},
      {{"BZPOPMAX", "{r}z", "0"}, "ZPOPMAX"},
      {{"BZPOPMIN", "{r}z", "0"}, "ZPOPMIN"},
      {{"XREAD", "COUNT", "1", "BLOCK", "1", "STREAMS", "{r}x", "$"}, "without BLOCK"},
      {{"XREADGROUP", "GROUP", "BLOCK", "c", "block", "1", "STREAMS", "{r}x", ">"}, "without BLOCK"},
      {{"XREADGROUP", "NOACK", "block", "1", "GROUP", "g", "c", "STREAMS", "{r}x", ">"}, "without BLOCK"}};
  for (const auto& [command, form] : blocking) {
    const auto message = refusal(command);
    EXPECT_NE(message.find("it blocks; " + form), std::string::npos) << message;
  }
  EXPECT_FALSE(write({"XREADGROUP", "GROUP", "BLOCK", "BLOCK", "STREAMS", "{r}x", ">"}).is_error())
      << "of that name are a group and a consumer";
  EXPECT_FALSE(guard_.read(claim_of(7), {"XREAD", "STREAMS", "{r}x", "0"}).replies.at(0).is_error());
  EXPECT_FALSE(guard_.read(claim_of(7), {"XREAD", "STREAMS", "{r}block", "0"}).replies.at(0).is_error());
}

// A name with 'blocking' among its flags that no other form is told of would be refused with less.
TEST_F(GuardCommands, EveryCommandThatMayBlockHasItsOwnSentence) {
  redis::CommandTable table;
  table.learn(server_.call({"COMMAND"}));
  for (const auto& command : server_.call({"COMMAND"}).elements) {
    const std::string_view name = command.elements.at(0).text;
    const auto* facts = table.find({&name, 1});
    if (facts == nullptr || !facts->may_block) continue;
    EXPECT_NE(facts->objection, "it blocks") << name;
  }
}

TEST_F(GuardCommands, WhatCannotBeJudgedAndAppliedInOneStepIsRefused) {
  for (const Command& command : {Command{"EVAL", "return 1", "1", "{r}a"},
                                 Command{"EVALSHA", "x", "1", "{r}a"},
                                 Command{"EVAL_RO", "return 1", "1", "{r}a"},
                                 Command{"FCALL", "f", "1", "{r}a"},
                                 Command{"FCALL_RO", "f", "1", "{r}a"},
                                 Command{"MULTI"},
                                 Command{"EXEC"},
                                 Command{"WATCH", "{r}a"},
                                 Command{"SUBSCRIBE", "{r}a"},
                                 Command{"PUBLISH", "{r}a", "x"},
                                 Command{"SPUBLISH", "{r}a", "x"},
                                 Command{"SELECT", "1"},
                                 Command{"FLUSHALL"},
                                 Command{"SWAPDB", "0", "1"},
                                 Command{"PING"},
                                 Command{"CONFIG", "SET", "maxmemory", "1"},
                                 Command{"SCRIPT", "FLUSH"},
                                 Command{"XGROUP"},
                                 Command{"XGROUP", "HELP"},
                                 Command{"DEBUG", "SLEEP", "1"},
                                 Command{"BLPOP", "{r}a", "0"},
                                 Command{"NO-SUCH", "{r}a"},
                                 Command{"XGROUP", "NO-SUCH", "{r}a"},
                                 Command{},
                                 Command{""},
                                 Command{"SET"},
                                 Command{"ZUNIONSTORE", "{r}a", "99", "{r}b"},
                                 Command{"KEYS", "*"},
                                 Command{"RANDOMKEY"},
                                 Command{"SORT", "{r}l", "BY", "fenceguard:*"},
                                 Command{"sort", "{r}l", "get", "fenceguard:{*}->holder"},
                                 Command{"SORT_RO", "{r}l", "GET", "#", "GET", "{s}*"}}) {
    SCOPED_TRACE(command.empty() ? "nothing" : command.front());
    refusal(command);
  }
  EXPECT_EQ(record(server_)[0], "-") << "what is refused moves no fence";
}

TEST_F(GuardCommands, ACommandThatWasRenamedIsKnownByItsOwnName) {
  RedisServer server{{"--rename-command", "MIGRATE", "XY", "--rename-command", "COPY", "DUPLICATE"}};
  init_namespace(server);
  redis::Client client{server.url()};
  redis::Guard guard{client};
  const auto kind = [&](const Command& command) {
    return kind_of([&] { return guard.write(claim_of(7), command); });
  };
  EXPECT_EQ(kind({"XY", "127.0.0.1", "1", "{r}a", "1", "9"}), FaultKind::invalid_input);
  EXPECT_EQ(kind({"DUPLICATE", "{r}a", "{r}b", "DB", "1"}), FaultKind::invalid_input);
  EXPECT_EQ(kind({"COPY", "{r}a", "{r}b"}), FaultKind::invalid_input);
}

// Many threads ask for the same and for other commands, in any case: each has the same facts, asked for but
// once or twice.
TEST_F(GuardCommands, OneTableServesManyThreads) {
  redis::CommandTable table;
  std::atomic<int> asked{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      redis::Client client{server_.url()};
      const redis::CommandTable::Ask ask = [&](redis::Arguments words) {
        ++asked;
        return client.call("r", words);
      };
      for (int round = 0; round < 200; ++round) {
        for (const Command& command :
             {Command{i % 2 == 0 ? "set" : "SET", "a", "1"}, Command{"Get", "a"},
              Command{"XGroup", "create", "x", "g", "0"}, Command{"hset", "h", "f", "1"}}) {
          const auto& facts = table.facts(ask, command);
          EXPECT_EQ(facts.writes, facts.name != "GET");
          EXPECT_EQ(&facts, &table.facts(ask, command));
        }
        EXPECT_THROW((void)table.facts(ask, {"NO-SUCH" + std::to_string(round % 2)}), InvalidInput);
      }
    });
  }
  threads.clear();
  EXPECT_LE(asked, 8 * 200 + 8 * 2) << "what the server does not know is asked for again";
}

// From the answer to one COMMAND, in any case and without asking further.
TEST_F(GuardCommands, OneAnswerTellsEveryCommandAndItsSubcommands) {
  redis::CommandTable table;
  const auto find = [&](std::initializer_list<std::string_view> words) {
    return table.find({words.begin(), words.size()});
  };
  EXPECT_EQ(find({"GET", "a"}), nullptr) << "nothing is known yet";
  EXPECT_THROW(table.learn(server_.call({"NO-SUCH"})), Unavailable);
  table.learn(server_.call({"COMMAND"}));
  ASSERT_NE(find({"gEt"}), nullptr);
  EXPECT_EQ(find({"gEt", "a"})->name, "GET");
  EXPECT_EQ(find({"xgroup", "Create", "x", "g", "0"})->name, "XGROUP|CREATE");
  EXPECT_EQ(find({"XGROUP"})->name, "XGROUP");
  EXPECT_EQ(find({"COMMAND"})->name, "COMMAND");
  for (const auto words : {std::initializer_list<std::string_view>{"NO-SUCH"},
                           {"NO-SUCH", "CREATE"},
                           {"XGROUP", "NO-SUCH", "x"},
                           {"XGROUP", ""},
                           {"XGROUP|CREATE", "x"},
                           {"XGROUPCREATE"},
                           {""},
                           {}})
    EXPECT_EQ(find(words), nullptr) << fmt::format("{}", fmt::join(words, " "));
  EXPECT_TRUE(find({"BLPOP"})->may_block && find({"XREAD"})->may_block && !find({"XRANGE"})->may_block);
  EXPECT_TRUE(find({"CONFIG", "SET"})->is_admin && !find({"CONFIG", "HELP"})->is_admin);
  EXPECT_TRUE(find({"EVAL"})->is_noscript && !find({"SET"})->is_noscript);
  EXPECT_TRUE(find({"PUBLISH"})->is_pubsub && !find({"PING"})->is_pubsub);
  const auto* known = find({"GET"});
  table.learn(server_.call({"COMMAND"}));
  EXPECT_EQ(find({"GET"}), known) << "what is the same stays where it is";
  const auto is_known_alone = [&](const Reply& command) { return find({command.elements.at(0).text}); };
  EXPECT_TRUE(std::ranges::all_of(server_.call({"COMMAND"}).elements, is_known_alone));
}

TEST_F(GuardCommands, WhatIsSaidOfACommandLaterIsWhatIsFound) {
  redis::CommandTable table;
  const std::string_view name = "GET";
  table.learn(server_.call({"COMMAND"}));
  const auto* before = table.find({&name, 1});
  table.learn({&name, 1}, server_.call({"COMMAND", "INFO", "SET"}));
  EXPECT_EQ(table.find({&name, 1})->name, "SET");
  EXPECT_EQ(before->name, "GET");
}

TEST_F(GuardCommands, BothNamesAreInTheRefusalOfAKeyOfAnotherResource) {
  const auto message = refusal({"SET", "{accounts/1}x", "1"});
  EXPECT_NE(message.find("'accounts/1'"), std::string::npos);
  EXPECT_NE(message.find("'r'"), std::string::npos);
}

TEST_F(GuardCommands, EveryByteOfAValueAndEveryKindOfReplyComesThrough) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(write({"SET", "r", bytes}).text, "OK");
  EXPECT_EQ(server_.call({"GET", "r"}).text, bytes);
  EXPECT_EQ(write({"GETSET", "r", ""}).text, bytes);
  EXPECT_EQ(write({"GETDEL", "r"}), (Reply{Reply::Kind::text, 0, "", {}}));
  EXPECT_TRUE(write({"GETDEL", "r"}).is_nil());
  write({"XADD", "{r}x", "1-1", "field", bytes});
  write({"XGROUP", "CREATE", "{r}x", "g", "0"});
  const auto read = write({"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{r}x", ">"});
  EXPECT_EQ(read.elements.at(0).elements.at(1).elements.at(0).elements.at(1).elements.at(1).text, bytes);
  write({"RPUSH", "{r}l", "exact", "12"});
  const auto list = guard_.read(claim_of(7), {"LRANGE", "{r}l", "0", "-1"}).replies.at(0);
  EXPECT_EQ(list.kind, Reply::Kind::array);
  EXPECT_EQ(list.elements.at(1).text, "12");
  EXPECT_EQ(write({"MSETNX", "{r}l", "1", "{r}y", "2"}).integer, 0);
  const auto fields = guard_.read(claim_of(7), {"MGET", "{r}none", "{r}l"}).replies.at(0);
  EXPECT_TRUE(fields.elements.at(0).is_nil() && fields.elements.at(1).is_nil());
}

TEST_F(GuardCommands, ManyWordsGoThroughAndTooManyAreRefused) {
  Command command{"RPUSH", "{r}l"};
  command.resize(7'000, "x");
  EXPECT_EQ(write(command).integer, 6'998);
  command.emplace_back("x");
  refusal(command);
  const std::vector<Command> several(200, Command{"INCR", "{r}n"});
  EXPECT_EQ(guard_.write_batch(claim_of(7), several).replies.back().integer, 200);
}

TEST_F(GuardCommands, IntegersBeyondWhatLuaHoldsAreExact) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random{seed};
  std::vector<std::int64_t> values{1,         (1LL << 53) - 1, 1LL << 53,        (1LL << 53) + 1,
                                   INT64_MAX, INT64_MIN,       -(1LL << 53) - 1, -(1LL << 53)};
  for (int i = 0; i < 50; ++i) values.push_back(static_cast<std::int64_t>(random()));
  for (const auto value : values) {
    SCOPED_TRACE(value);
    const auto text = std::to_string(value);
    write({"DEL", "{r}n", "{r}h"});
    EXPECT_EQ(write({"INCRBY", "{r}n", text}).integer, value);
    EXPECT_EQ(write({"HINCRBY", "{r}h", "f", text}).integer, value);
    if (value == INT64_MAX) continue;
    EXPECT_EQ(write({"incr", "{r}n"}).integer, value + 1);
    EXPECT_EQ(write({"DECR", "{r}n"}).integer, value);
  }
  write({"SET", "{r}n", std::to_string(INT64_MIN + 9)});
  const auto written = guard_.write_batch(
      claim_of(7), {{"DECRBY", "{r}n", "8"}, {"INCR", "{r}small"}, {"INCRBY", "{r}n", "2"}});
  EXPECT_EQ(written.replies.at(0).integer, INT64_MIN + 1);
  EXPECT_EQ(written.replies.at(1).integer, 1);
  EXPECT_EQ(written.replies.at(2).integer, INT64_MIN + 3);
  write({"SET", "{r}n", std::to_string(INT64_MAX)});
  EXPECT_TRUE(write({"INCR", "{r}n"}).text.starts_with("ERR increment or decrement would overflow"));
}

TEST_F(GuardCommands, FailedCommandWritesNothingAndLeavesTheSequenceFree) {
  write({"SET", "{r}a", "1"});
  (void)guard_.write(claim_of(8, "b", "r", 4), {"SET", "{r}b", "1"});
  auto written = guard_.write(claim_of(8, "b", "r", 5), {"RPUSH", "{r}a", "x"});
  EXPECT_EQ(written.ruling.verdict, Verdict::admitted);
  EXPECT_TRUE(written.replies.at(0).text.starts_with("WRONGTYPE"));
  EXPECT_EQ(written.ruling.fence->sequence, Sequence{4});
  EXPECT_EQ(record(server_)[2], "4");
  written = guard_.write(claim_of(9, "c", "r", 5), {"RPUSH", "{r}a", "x"});
  EXPECT_TRUE(written.replies.at(0).is_error());
  EXPECT_EQ(written.ruling.fence->sequence, std::nullopt);
  EXPECT_EQ(record(server_)[0], "9");
  EXPECT_EQ(guard_.write(claim_of(9, "c", "r", 5), {"SET", "{r}a", "2"}).ruling.verdict, Verdict::admitted);
  EXPECT_EQ(guard_.write(claim_of(9, "c", "r", 5), {"SET", "{r}a", "3"}).ruling.verdict, Verdict::duplicate);
  EXPECT_EQ(guard_.write(claim_of(9, "c", "r", 4), {"SET", "{r}a", "3"}).ruling.verdict, Verdict::stale);
  EXPECT_EQ(server_.call({"GET", "{r}a"}).text, "2");
  EXPECT_EQ(guard_.write(claim_of(8, "b", "r", 6), {"SET", "{r}a", "3"}).ruling.verdict, Verdict::stale);
}

TEST_F(GuardCommands, SeveralRunToTheFirstFailureAndCountIfAnyWrote) {
  write({"SET", "{r}a", "1"});
  const auto written = guard_.write_batch(claim_of(7, "h", "r", 1),
                                          {{"INCR", "{r}n"}, {"LPUSH", "{r}a", "x"}, {"INCR", "{r}n"}});
  EXPECT_EQ(written.replies.size(), 2u);
  EXPECT_EQ(server_.call({"GET", "{r}n"}).text, "1");
  EXPECT_EQ(record(server_)[2], "1");
  const std::vector<Command> first_reads{{"GET", "{r}n"}, {"LPUSH", "{r}a", "x"}};
  EXPECT_TRUE(guard_.write_batch(claim_of(7, "h", "r", 2), first_reads).replies.at(1).is_error());
  EXPECT_EQ(guard_.write(claim_of(7, "h", "r", 2), {"INCR", "{r}n"}).ruling.verdict, Verdict::admitted)
      << "a read uses up no sequence";
}

TEST_F(GuardCommands, AFencedReadAdvancesFirstAndRefusesWhatWrites) {
  write({"SET", "{r}a", "1"});
  auto read = guard_.read(claim_of(8, "b", "r", 3), {"GET", "{r}a"});
  EXPECT_EQ(read.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(read.replies.at(0).text, "1");
  EXPECT_EQ(record(server_), (std::vector<std::string>{"8", "b", "-", "-"}));
  EXPECT_EQ(guard_.write(claim_of(7), {"SET", "{r}a", "late"}).ruling.verdict, Verdict::stale);
  read = guard_.read(claim_of(7), {"GET", "{r}a"});
  EXPECT_EQ(read.ruling.verdict, Verdict::stale);
  EXPECT_TRUE(read.replies.empty());
  EXPECT_EQ(kind_of([&] {
              return guard_.read(claim_of(8, "b"), {"SET", "{r}a", "1"});
            }),
            FaultKind::invalid_input);
  EXPECT_EQ(kind_of([&] {
              return guard_.read(claim_of(8, "b"), {"GETEX", "{r}a", "EX", "1"});
            }),
            FaultKind::invalid_input);
}

TEST_F(GuardCommands, AnImplausibleJumpMovesNothing) {
  init_namespace(server_, 1'000);
  redis::Guard guard{client_, 100};
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(1'101)); }), FaultKind::implausible);
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(INT64_MAX)); }), FaultKind::implausible);
  EXPECT_EQ(record(server_)[0], "-");
  EXPECT_EQ(guard.advance(claim_of(1'100)).verdict, Verdict::admitted);
  EXPECT_EQ(guard.advance(claim_of(1'200, "h", "other")).verdict, Verdict::admitted)
      << "above the highest of the namespace, not of the resource";
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(1'301)); }), FaultKind::implausible);
  EXPECT_EQ(server_.call({"ZRANGE", "fenceguard:resources", "0", "-1"}).elements.size(), 2u);
}

TEST_F(GuardCommands, ANewHolderHasNeitherItsPredecessorsSequenceNorItsRevoke) {
  (void)guard_.write(claim_of(7, "a", "r", 90), {"SET", "{r}a", "1"});
  server_.call({"HSET", "fenceguard:{r}", "closed", "1"});
  EXPECT_EQ(guard_.advance(claim_of(7, "a")).verdict, Verdict::stale);
  EXPECT_EQ(guard_.advance(claim_of(8, "b")).verdict, Verdict::admitted);
  EXPECT_EQ(guard_.write(claim_of(8, "b", "r", 0), {"SET", "{r}a", "2"}).ruling.verdict, Verdict::admitted);
}

}  // namespace
}  // namespace fenceguard::test
