// What the lock, the quorum and the guarded write cost over Redis, each against the bare commands that a
// service would send over hiredis instead. The servers are started here, in temporary folders on free ports.

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "adapters/redis/guard.hpp"
#include "adapters/redis/quorum/source.hpp"
#include "adapters/redis/token_source.hpp"
#include "bench/side_by_side.hpp"
#include "guard/support/clock.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::bench {
namespace {

using fenceguard::test::RedisServer;
using redis::Client;
using redis::Connection;
using redis::Guard;
using redis::Script;

const Script& compare_and_delete() {
  static const Script script{
      "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"};
  return script;
}

using Words = std::vector<std::string_view>;

Words bare_acquire(const std::string& key) {
  return {"SET", key, "value", "NX", "PX", "30000"};
}
Words bare_release(const std::string& key) {
  return {"EVALSHA", compare_and_delete().hash(), "1", key, "value"};
}

void load(Connection& connection) {
  (void)connection.call(Words{"SCRIPT", "LOAD", compare_and_delete().text()});
}

double rate_of_locks(TokenSource& source, int count) {
  const Resource resource{"accounts/42"};
  const Holder holder = Holder::random();
  return rate(count, [&](int) {
    auto answer = source.try_acquire(resource, holder, std::chrono::seconds{30});
    source.release(std::get<Grant>(answer).claim);
  });
}

void measure_lock(const Settings& settings) {
  const std::string name = "redis: acquire and release, one connection";
  if (!settings.wants(name)) return;
  RedisServer server;
  const auto source = redis::open_source(Url::parse(server.url()));
  Connection bare{redis::address_of(Url::parse(server.url()))};
  load(bare);
  const int count = settings.quick ? 5'000 : 40'000;
  const auto sides = alternate(
      settings.quick ? 5 : 9, [&] { return rate_of_locks(*source, count); },
      [&] {
        return rate(count, [&](int) {
          (void)bare.call(bare_acquire("lock"));
          (void)bare.call(bare_release("lock"));
        });
      });
  print_rates(name, sides, ">= 0.85");
}

// Asks all at once, and waits for the last.
void ask_all(std::vector<Connection>& nodes, const Words& words) {
  for (auto& node : nodes) {
    node.queue(words);
    node.send();
  }
  for (auto& node : nodes) (void)node.receive();
}

void measure_quorum(const Settings& settings) {
  const std::string name = "redis-quorum: acquire and release, five servers";
  if (!settings.wants(name)) return;
  std::vector<std::unique_ptr<RedisServer>> servers;
  std::vector<Connection> nodes;
  std::string hosts;
  for (int i = 0; i < 5; ++i) {
    servers.push_back(std::make_unique<RedisServer>());
    nodes.emplace_back(redis::address_of(Url::parse(servers.back()->url())));
    load(nodes.back());
    hosts += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", servers.back()->port());
  }
  const auto source = redis::open_quorum_source(
      Url::parse("redis-quorum://" + hosts + "?unsafe_persistence=1&node_timeout=5s"));
  (void)source->draw();
  const int count = settings.quick ? 1'500 : 10'000;
  const auto sides = alternate(
      settings.quick ? 5 : 9, [&] { return rate_of_locks(*source, count); },
      [&] {
        return rate(count, [&](int) {
          ask_all(nodes, bare_acquire("lock"));
          ask_all(nodes, bare_release("lock"));
        });
      });
  print_rates(name, sides, ">= 0.75");
}

// A namespace with a floor, so that claims are judged.
void initialise(RedisServer& server) {
  server.call({"HSET", "fenceguard:namespace", "floor", "0", "highest", "0"});
}

std::string key_of(int thread, int number) {
  return fmt::format("{{accounts/{}}}:{}", thread, number % 100);
}

Claim claim_of(int thread) {
  return {Resource{fmt::format("accounts/{}", thread)}, Token{7}, Holder{"holder"}, std::nullopt};
}

void measure_writes(const Settings& settings) {
  const std::string name = "redis: guarded SET, 50 connections";
  if (!settings.wants(name)) return;
  RedisServer server;
  initialise(server);
  constexpr int threads = 50;
  const int count = settings.quick ? 1'000 : 6'000;
  const auto sides = alternate(
      settings.quick ? 5 : 9,
      [&] {
        return rate_of_threads(threads, count, [&](int thread) {
          auto client = std::make_shared<Client>(server.url());
          auto guard = std::make_shared<Guard>(*client);
          (void)guard->write(claim_of(thread), {"SET", key_of(thread, 0), "100"});
          return [client, guard, claim = claim_of(thread), thread](int n) {
            (void)guard->write(claim, {"SET", key_of(thread, n), "100"});
          };
        });
      },
      [&] {
        return rate_of_threads(threads, count, [&](int thread) {
          auto bare = std::make_shared<Connection>(redis::address_of(Url::parse(server.url())));
          return [bare, thread](int n) { (void)bare->call(Words{"SET", key_of(thread, n), "100"}); };
        });
      });
  print_rates(name, sides, ">= 0.8");
}

// depth writes under one claim, which go in one script.
void measure_pipelines(const Settings& settings, int depth, const std::string& target) {
  const auto name = fmt::format("redis: guarded SET, pipelines of {}, 8 connections", depth);
  if (!settings.wants(name)) return;
  RedisServer server;
  initialise(server);
  constexpr int threads = 8;
  const int count = (settings.quick ? 8'000 : 48'000) / depth;
  const auto sides = alternate(
      settings.quick ? 5 : 9,
      [&] {
        return depth * rate_of_threads(threads, count, [&](int thread) {
                 auto client = std::make_shared<Client>(server.url());
                 auto guard = std::make_shared<Guard>(*client);
                 return [client, guard, depth, claim = claim_of(thread), thread](int n) {
                   std::vector<redis::Write> writes;
                   for (int i = 0; i < depth; ++i)
                     writes.push_back({claim, {{"SET", key_of(thread, n + i), "100"}}});
                   (void)guard->pipeline(writes);
                 };
               });
      },
      [&] {
        return depth * rate_of_threads(threads, count, [&](int thread) {
                 auto bare = std::make_shared<Connection>(redis::address_of(Url::parse(server.url())));
                 return [bare, depth, thread](int n) {
                   for (int i = 0; i < depth; ++i) bare->queue(Words{"SET", key_of(thread, n + i), "100"});
                   bare->send();
                   for (int i = 0; i < depth; ++i) (void)bare->receive();
                 };
               });
      });
  print_rates(name, sides, target);
}

// The scripts that the server has run so far.
double scripts_run(RedisServer& server) {
  const auto stats = server.call({"INFO", "commandstats"}).text;
  double sum = 0;
  for (const std::string_view command : {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="}) {
    const auto at = stats.find(command);
    if (at != std::string::npos) sum += std::stod(stats.substr(at + command.size()));
  }
  return sum;
}

// Hands one lock on from waiter to waiter; milliseconds from before a release to the next one's return, and
// the scripts that each hand-over took.
struct HandOver {
  double median_ms = 0;
  double scripts = 0;
};

HandOver hand_over(int waiters, int turns) {
  RedisServer server;
  const auto source = redis::open_source(Url::parse(server.url()));
  const Resource resource{"accounts/42"};
  std::mutex mutex;
  std::vector<double> times_ms;
  BootClock::time_point released_at{};  // protected by the lock itself
  std::atomic<int> asking{0};
  std::atomic<bool> is_over{false};
  auto first = source->try_acquire(resource, Holder{"first"}, std::chrono::seconds{60});
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiters; ++i) {
    threads.emplace_back([&](const std::stop_token& stop) {
      ++asking;
      while (!is_over) {
        const auto grant = source->wait_acquire(
            resource, Holder::random(),
            {.ttl = std::chrono::seconds{60}, .wait = std::chrono::minutes{5}, .stop = stop});
        if (!grant) return;
        const auto now = BootClock::now();
        {
          const std::scoped_lock lock{mutex};
          times_ms.push_back(std::chrono::duration<double, std::milli>(now - released_at).count());
          if (static_cast<int>(times_ms.size()) == turns) is_over = true;
        }
        released_at = BootClock::now();
        source->release(grant->claim);
      }
    });
  }
  while (asking < waiters) std::this_thread::yield();
  // Until all of them sit down: nobody asks the server any more.
  for (double before = -1; before != scripts_run(server);
       std::this_thread::sleep_for(std::chrono::milliseconds{200}))
    before = scripts_run(server);
  const double before = scripts_run(server);
  released_at = BootClock::now();
  source->release(std::get<Grant>(first).claim);
  while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  const double after = scripts_run(server);
  for (auto& thread : threads) thread.request_stop();
  threads.clear();
  const std::scoped_lock lock{mutex};
  return {median(times_ms), (after - before) / turns};
}

void measure_waiters(const Settings& settings) {
  const std::string name = "redis: hand-over among 500 waiters";
  if (!settings.wants(name)) return;
  const int turns = settings.quick ? 300 : 2'000;
  const auto many = hand_over(500, turns);
  const auto few = hand_over(5, turns);
  print({"ms of a " + name, fmt::format("{:.2f}", many.median_ms), fmt::format("{:.2f} ms", many.median_ms),
         fmt::format("{:.2f} ms among 5", few.median_ms), "< 5"});
  print({name + ", scripts each", fmt::format("{:.2f}", many.scripts / few.scripts),
         fmt::format("{:.1f}", many.scripts), fmt::format("{:.1f} among 5", few.scripts), "<= 1.1"});
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  const auto settings = fenceguard::bench::read_settings(argc, argv);
  fenceguard::bench::measure_lock(settings);
  fenceguard::bench::measure_quorum(settings);
  fenceguard::bench::measure_writes(settings);
  for (const int depth : {2, 4}) fenceguard::bench::measure_pipelines(settings, depth, "");
  fenceguard::bench::measure_pipelines(settings, 16, ">= 0.35");
  fenceguard::bench::measure_waiters(settings);
}
