// What the lock and the guarded write cost over etcd, each against the bare requests over the same client,
// and the lock beside etcdctl's. A cluster of three is started here, in temporary folders on free ports.

#include <iostream>
#include <memory>
#include <random>

#include "adapters/etcd/guard.hpp"
#include "adapters/etcd/token_source.hpp"
#include "bench/side_by_side.hpp"
#include "tests/etcd/cluster.hpp"

namespace fenceguard::bench {
namespace {

using etcd::Client;
using etcd::Guard;
using etcd::Txn;
using fenceguard::test::EtcdCluster;

constexpr int threads = 8;  // of each process that writes
constexpr int locks = 100;  // of a batch
constexpr std::chrono::seconds ttl{30};

double rate_of_locks(TokenSource& source) {
  const Resource resource{"accounts/42"};
  const Holder holder = Holder::random();
  return rate(locks, [&](int) {
    auto answer = source.try_acquire(resource, holder, ttl);
    source.release(std::get<Grant>(answer).claim);
  });
}

// The key of a lock under a lease, if it is not there, and the first of the lock.
void put_key(Client& client, std::int64_t lease) {
  const auto key = fmt::format("bare/lock/{:x}", lease);
  auto first = etcd::get_all("bare/lock/");
  first.sort = etcd::Op::Sort::by_create_revision;
  first.limit = 1;
  (void)client.txn(
      {{etcd::is_absent(key)}, {etcd::put(key, "holder", lease), first}, {etcd::get(key), first}});
}

void measure_lock(EtcdCluster& cluster, const Settings& settings) {
  const std::string name = "etcd: acquire and release";
  if (!settings.wants(name)) return;
  const auto source = etcd::open_source(Url::parse(cluster.url("/bench")));
  Client bare{cluster.url()};
  const int rounds = settings.quick ? 7 : 31;
  const auto ours = [&] { return rate_of_locks(*source); };
  (void)ours();
  std::mt19937_64 random{42};
  const auto new_lease = [&] {
    const auto lease = static_cast<std::int64_t>(random() >> 2);
    (void)bare.grant(lease, ttl);
    return lease;
  };
  const auto sides = alternate(rounds, ours, [&] {
    return rate(locks, [&](int) {
      const auto lease = new_lease();
      put_key(bare, lease);
      (void)bare.revoke(lease);
    });
  });
  print_rates(name + ", against lease grant, Txn, lease revoke", sides, ">= 0.9");
  // What a session of etcd's own client does, whose lease stays.
  const auto lasting = alternate(rounds, ours, [&] {
    const auto lease = new_lease();
    return rate(locks, [&](int) {
      put_key(bare, lease);
      (void)bare.txn({{}, {etcd::remove(fmt::format("bare/lock/{:x}", lease))}, {}});
    });
  });
  print_rates(name + ", against Txn, delete under a lease that is not renewed", lasting, "none");
}

// Whole processes, as a shell script uses them.
void measure_programs(EtcdCluster& cluster, const Settings& settings) {
  const std::string name = "etcd: 'fenceguard exec -- true' beside 'etcdctl lock NAME true'";
  if (!settings.wants(name)) return;
  constexpr int count = 10;
  const auto loop = [&](const std::string& line) {
    return rate(count, [&](int) {
      if (system(line.c_str()) != 0) throw std::runtime_error{"this failed: " + line};
    });
  };
  const auto ours = fmt::format("{} exec --source '{}' --resource a --ttl 30s -- true >/dev/null 2>&1",
                                FENCEGUARD_BINARY, cluster.url("/bench"));
  std::string endpoints;
  for (std::size_t i = 0; i < cluster.size(); ++i)
    endpoints += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", cluster.member(i).port());
  const auto theirs =
      fmt::format("ETCDCTL_API=3 etcdctl --endpoints={} lock bare/program true >/dev/null 2>&1", endpoints);
  print_rates(name,
              alternate(
                  settings.quick ? 3 : 15, [&] { return loop(ours); }, [&] { return loop(theirs); }),
              "> 1");
}

Claim claim_of(int process, int thread, std::int64_t token) {
  return {Resource{fmt::format("accounts/{}/{}", process, thread)}, Token{token}, Holder{"holder"}, {}};
}

// What one process does: PROGRAM --worker URL KIND COUNT. Prints writes in a second.
double work(const std::string& url, const std::string& kind, int count) {
  const int process = getpid();
  Client client{url + "/bench"};
  Guard guard{client};
  const bool advances = kind.ends_with("advancing");
  const bool is_bare = kind.starts_with("bare");
  return rate_of_threads(threads, count, [&](int thread) {
    const auto data = fmt::format("data/{}-{}", process, thread);
    const auto fence = data + "-fence";
    const std::string record = "1000000 - open holder";
    (void)client.txn({{}, {etcd::put(fence, record), etcd::put(data + "-floor", "0")}, {}});
    const auto made = client.range(etcd::get(fence)).found.at(0).create_revision;
    if (!is_bare) (void)guard.advance(claim_of(process, thread, 1'000'000));
    return [=, &guard, &client](int n) {
      if (!is_bare) {
        const auto claim = claim_of(process, thread, 1'000'000 + (advances ? n + 1 : 0));
        if (!guard.write(claim, {etcd::put(data, "100")}).is_done()) std::abort();
        return;
      }
      Txn txn{{etcd::value_is(fence, record), etcd::created_at(fence, made)},
              {etcd::put(data, "100")},
              {etcd::get(fence), etcd::get(data + "-floor")}};
      if (advances) txn.then.push_back(etcd::put(fence, record));
      if (!client.txn(txn).succeeded) std::abort();
    };
  });
}

void measure_writes(EtcdCluster& cluster, const Settings& settings) {
  Client client{cluster.url()};
  (void)client.txn({{}, {etcd::put("bench/floor", "0")}, {}});
  const auto count = std::to_string(settings.quick ? 100 : 300);
  for (const int processes : {1, 3}) {
    for (const std::string kind : {"equal token", "advancing"}) {
      const auto name = fmt::format("etcd: guarded write, {}, {} process{} of {} threads", kind, processes,
                                    processes == 1 ? "" : "es", threads);
      if (!settings.wants(name)) continue;
      const auto sides = alternate(
          settings.quick ? 3 : 15,
          [&] {
            return sum_of_workers(processes, {cluster.url(), "ours " + kind, count});
          },
          [&] {
            return sum_of_workers(processes, {cluster.url(), "bare " + kind, count});
          });
      print_rates(name + ", against a bare Txn of the same size", sides, ">= 0.9");
    }
  }
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  using namespace fenceguard::bench;
  if (argc == 5 && std::string{argv[1]} == "--worker") {
    std::cout << work(argv[2], argv[3], std::stoi(argv[4])) << std::endl;
    return 0;
  }
  const auto settings = read_settings(argc, argv);
  fenceguard::test::EtcdCluster cluster{3};
  measure_lock(cluster, settings);
  measure_programs(cluster, settings);
  measure_writes(cluster, settings);
}
