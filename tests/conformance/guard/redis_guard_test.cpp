#include <fmt/format.h>

#include <atomic>
#include <set>

#include "adapters/redis/guard.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {
namespace {

// How a service writes: each of the ways must give the same rulings.
enum class Way { one_command, several_commands, pipeline, run };

std::string shared_url(bool is_cluster) {
  if (is_cluster) {
    static const RedisCluster cluster;
    return cluster.url();
  }
  static const RedisServer server;
  return server.url();
}

// A namespace of its own on a server that all share.
class WaysSpace : public GuardSpace {
 public:
  WaysSpace(Way way, bool is_cluster, const GuardKind::Start& start) : way_{way} {
    static std::atomic<int> number{0};
    const auto prefix = fmt::format("space-{}:", ++number);
    url_ = shared_url(is_cluster) + "?prefix=" + prefix;
    suffix_ = ":" + prefix + "value";
    client_ = std::make_unique<redis::Client>(url_);
    if (!is_cluster) {
      std::int64_t highest = start.floor;
      for (const auto& [resource, fence] : start.records) highest = std::max(highest, fence.token.value());
      run({"HSET", client_->keys().name_space(), "floor", std::to_string(start.floor), "highest",
           std::to_string(highest)});
    }
    for (const auto& [resource, fence] : start.records) {
      const auto key = client_->keys().fence(resource);
      run({"HSET", key, "token", to_string(fence.token), "holder", fence.holder.id()});
      if (fence.sequence) run({"HSET", key, "sequence", to_string(*fence.sequence)});
      if (fence.closed) run({"HSET", key, "closed", "1"});
    }
  }

  std::unique_ptr<GuardConnection> connect() override {
    return std::make_unique<Connection>(way_, url_, suffix_);
  }

  FenceView fence(const Resource& resource) override {
    FenceView view;
    const auto key = client_->keys().fence(resource);
    if (!client_->is_cluster())
      view.floor = parse_decimal(run({"HGET", client_->keys().name_space(), "floor"}).text).value();
    const auto fields = run({"HMGET", key, "token", "holder", "sequence", "closed"}).elements;
    if (fields.at(0).is_nil()) return view;
    view.record = Fence{Token::parse(fields[0].text).value(), Holder{fields[1].text},
                        Sequence::parse(fields[2].text), fields[3].text == "1"};
    return view;
  }

 private:
  redis::Reply run(const std::vector<std::string>& words) {
    auto reply = client_->call(words[1], std::vector<std::string_view>{words.begin(), words.end()});
    EXPECT_FALSE(reply.is_error()) << reply.text;
    return reply;
  }

  class Connection : public GuardConnection {
   public:
    Connection(Way way, const std::string& url, const std::string& suffix)
        : way_{way}, suffix_{suffix}, client_{url}, guard_{client_} {}

    Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

    Ruling write(const Claim& claim, const std::string& value) override {
      const auto key = key_of(claim.resource);
      if (way_ == Way::one_command) return guard_.write(claim, {"SET", key, value}).ruling;
      const redis::Write all{claim, {{"DEL", key}, {"APPEND", key, value}, {"GET", key}}};
      if (way_ == Way::several_commands) return guard_.write_batch(claim, all.commands).ruling;
      if (way_ == Way::run) return write_run(claim, {{"SET", key, ""}, {"APPEND", key, value}, {"GET", key}});
      // Between two of another resource, whose rulings are their own.
      const Claim other{Resource{"other"}, Token{INT64_MAX}, Holder{"o"}, {}};
      const auto outcomes = guard_.pipeline(
          std::vector<redis::Write>{{other, {{"INCR", "other"}}}, all, {other, {{"INCR", "other"}}}});
      EXPECT_EQ(outcomes.at(0).value().ruling.verdict, outcomes.at(2).value().ruling.verdict);
      return outcomes.at(1).value().ruling;
    }

    std::string read(const Resource& resource) override {
      const auto key = key_of(resource);
      const std::string_view words[] = {"GET", key};
      return client_.call(key, words).text;
    }

   private:
    // In one script, where there is no sequence to be counted for each.
    Ruling write_run(const Claim& claim, const std::vector<redis::Command>& commands) {
      if (claim.sequence) return guard_.write_batch(claim, commands).ruling;
      std::vector<redis::Write> writes;
      for (const auto& command : commands) writes.push_back({claim, {command}});
      const auto outcomes = guard_.pipeline(writes);
      for (const auto& outcome : outcomes)
        EXPECT_EQ(outcome.value().ruling.verdict, outcomes.front().value().ruling.verdict);
      return outcomes.front().value().ruling;
    }

    [[nodiscard]] std::string key_of(const Resource& resource) const {
      return "{" + resource.name() + "}" + suffix_;
    }

    Way way_;
    std::string suffix_;
    redis::Client client_;
    redis::Guard guard_;
  };

  Way way_;
  std::string url_;
  std::string suffix_;
  std::unique_ptr<redis::Client> client_;
};

GuardKind kind(const std::string& name, Way way, bool is_cluster = false) {
  const auto make = [=](const GuardKind::Start& start) {
    return std::make_unique<WaysSpace>(way, is_cluster, start);
  };
  return {name, make, !is_cluster};
}

INSTANTIATE_TEST_SUITE_P(Redis, GuardSuite,
                         testing::Values(kind("one_command", Way::one_command),
                                         kind("several_commands", Way::several_commands),
                                         kind("pipeline", Way::pipeline), kind("run", Way::run),
                                         kind("cluster", Way::one_command, true),
                                         kind("cluster_pipeline", Way::pipeline, true),
                                         kind("cluster_run", Way::run, true)),
                         guard_kind_name);

// What the table must hold for this to mean anything: the numbers at which a script's own would round.
TEST(RedisGuardCases, TheTableHasTokensAroundEveryEdgeOfANumber) {
  std::set<std::int64_t> tokens;
  for (const auto& one : judge_cases()) tokens.insert(one.token.value());
  for (const int bits : {31, 32, 53}) {
    const auto edge = std::int64_t{1} << bits;
    EXPECT_TRUE(tokens.contains(edge) || tokens.contains(edge + 1)) << bits;
    EXPECT_TRUE(tokens.contains(edge - 1)) << bits;
  }
  EXPECT_TRUE(tokens.contains(INT64_MAX));
}

}  // namespace
}  // namespace fenceguard::test
