#pragma once

// Pipelines of guarded writes on a server of the test's own: what is sent, and how each write ended.

#include "tests/redis/guard/space.hpp"

namespace fenceguard::test {

using redis::Command;
using redis::Reply;
using redis::Write;
using testing::Test;

using Outcomes = std::vector<Outcome<redis::WriteResult>>;

inline std::vector<Write> writes_of(const Claim& claim, const std::vector<Command>& commands) {
  std::vector<Write> writes;
  for (const auto& command : commands) writes.push_back({claim, {command}});
  return writes;
}

// An ending in a word: the verdict, or the kind of the fault.
inline std::string ending_of(const Outcome<redis::WriteResult>& outcome) {
  return outcome.ok() ? to_string(outcome.value().ruling.verdict) : to_string(outcome.fault().kind);
}

inline std::vector<std::string> endings_of(const Outcomes& outcomes) {
  std::vector<std::string> endings;
  for (const auto& outcome : outcomes) endings.push_back(ending_of(outcome));
  return endings;
}

class GuardPipeline : public Test {
 protected:
  GuardPipeline() { init_namespace(server_); }

  Outcomes pipeline(const std::vector<Write>& writes) { return guard_.pipeline(writes); }
  Outcomes pipeline(const Claim& claim, const std::vector<Command>& commands) {
    return pipeline(writes_of(claim, commands));
  }
  std::string get(const std::string& key) { return server_.call({"GET", key}).text; }

  // How many scripts the server has run.
  std::int64_t scripts() {
    std::int64_t sum = 0;
    const auto text = server_.call({"INFO", "commandstats"}).text;
    for (const std::string name : {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="}) {
      const auto at = text.find(name);
      if (at != text.npos) sum += std::stoll(text.substr(at + name.size()));
    }
    return sum;
  }

  RedisServer server_;
  redis::Client client_{server_.url()};
  redis::Guard guard_{client_};
};

// Every kind of reply, and errors among them.
const std::vector<Command> all_kinds{
    {"SET", "{r}a", "x"},
    {"GET", "{r}a"},
    {"GET", "{r}none"},
    {"SET", "{r}a", "y", "GET"},
    {"SET", "{r}a", "z", "NX"},
    {"LPUSH", "{r}a", "x"},
    {"SETRANGE", "{r}a", "-1", "x"},
    {"INCR", "{r}a"},
    {"SET", "{r}empty", ""},
    {"GET", "{r}empty"},
    {"APPEND", "{r}empty", ""},
    {"INCRBY", "{r}n", "9007199254740993"},
    {"INCR", "{r}n"},
    {"DECRBY", "{r}m", "9223372036854775807"},
    {"HINCRBY", "{r}h", "f", "-9007199254740995"},
    {"INCRBYFLOAT", "{r}n2", "1.5"},
    {"HINCRBYFLOAT", "{r}h", "g", "0.1"},
    {"HGETALL", "{r}h"},
    {"HGETALL", "{r}none"},
    {"HMGET", "{r}h", "none", "g"},
    {"RPUSH", "{r}l", "admitted", "9", "2", "3", "4", "5"},
    {"LRANGE", "{r}l", "0", "-1"},
    {"LPOP", "{r}l", "5"},
    {"LPOP", "{r}l", "1"},
    {"LPOP", "{r}l", "1"},
    {"LPOP", "{r}l"},
    {"RPUSH", "{r}l", "alone"},
    {"LMPOP", "1", "{r}l", "LEFT"},
    {"LMPOP", "1", "{r}l", "LEFT"},
    {"LMPOP", "1", "{r}l", "LEFT"},
    {"ZADD", "{r}z", "1.25", "a", "2", "b"},
    {"ZADD", "{r}z", "INCR", "0.1", "a"},
    {"ZADD", "{r}z", "NX", "INCR", "1", "a"},
    {"ZINCRBY", "{r}z", "inf", "b"},
    {"ZSCORE", "{r}z", "a"},
    {"ZRANGE", "{r}z", "0", "-1", "WITHSCORES"},
    {"ZPOPMIN", "{r}z"},
    {"ZPOPMIN", "{r}none"},
    {"ZRANDMEMBER", "{r}none"},
    {"SADD", "{r}s", "x"},
    {"SPOP", "{r}s", "3"},
    {"SPOP", "{r}s"},
    {"GEOADD", "{r}g", "13.361389", "38.115556", "p"},
    {"GEOPOS", "{r}g", "p", "none"},
    {"XADD", "{r}x", "1-1", "f", "v"},
    {"XADD", "{r}x", "1-1", "f", "v"},
    {"XGROUP", "CREATE", "{r}x", "g", "0"},
    {"XGROUP", "CREATE", "{r}x", "g", "0"},
    {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{r}x", ">"},
    {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{r}x", ">"},
    {"XREADGROUP", "GROUP", "none", "c", "STREAMS", "{r}x", ">"},
    {"XPENDING", "{r}x", "g"},
    {"XINFO", "STREAM", "{r}x"},
    {"BITFIELD", "{r}b", "SET", "u8", "0", "255", "OVERFLOW", "FAIL", "INCRBY", "u8", "0", "1"},
    {"EXPIRE", "{r}none", "9"},
    {"PERSIST", "{r}a"},
    {"TYPE", "{r}a"},
    {"EXISTS", "{r}a", "{r}none"},
    {"RESTORE", "{r}a", "0", "x"},
    {"RENAME", "{r}none", "{r}b"},
    {"MSET", "{r}c", "1", "{r}d", "2"},
    {"MGET", "{r}c", "{r}none", "{r}z"},
    {"SORT", "{r}none", "STORE", "{r}l3"},
    {"LSET", "{r}none", "0", "x"},
    {"DEL", "{r}c", "{r}d"},
};

}  // namespace fenceguard::test
