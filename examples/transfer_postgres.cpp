// Money moves between accounts, under two locks at a time, by as many processes as you like; each may be
// stopped for longer than its leases last. It reads, thinks, and writes what it thought of: what was true
// when it was read. The sum never changes, because both claims are judged in the transaction that writes both
// accounts.
//
// usage: transfer_postgres postgres://USER@HOST/DATABASE COUNT [unguarded]
// Once before: fenceguard sql postgres | psql, and CREATE TABLE account (id bigint PRIMARY KEY, balance
// bigint) with accounts 1 to 4. 'unguarded' trusts the locks alone: stop a process, and money appears or
// vanishes.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <pqxx/pqxx>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/schemes.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

constexpr int accounts = 4;
constexpr auto thinking = 20ms;  // between reading and writing
const AcquireOptions patience{.ttl = 300ms, .wait = 30s};

struct Transfer {
  int from;
  int to;
  std::int64_t amount;
};

struct Tally {
  int done = 0;
  int refused = 0;  // each was tried again under new leases
  int unknown = 0;  // never repeated: it may have taken effect
};

class Bank {
 public:
  Bank(const std::string& url, bool is_guarded)
      : connection_{url}, source_{open_source(url)}, guard_{connection_}, is_guarded_{is_guarded} {}

  // One attempt, under two leases of its own.
  Verdict attempt(const Transfer& transfer) {
    // Always the lower account first, so that two processes do not wait for each other.
    const auto first = source_->acquire(resource(std::min(transfer.from, transfer.to)), patience);
    const auto second = source_->acquire(resource(std::max(transfer.from, transfer.to)), patience);
    if (!first || !second) throw Unavailable("an account stayed locked");
    const std::array claims{first->claim(), second->claim()};
    // Before the first read: what older holders still write lands before, or never.
    for (const Claim& claim : claims) {
      const auto verdict = is_guarded_ ? guard_.advance(claim).verdict : Verdict::admitted;
      if (verdict != Verdict::admitted) return verdict;
    }
    const auto from = balance(transfer.from) - transfer.amount;
    const auto to = balance(transfer.to) + transfer.amount;
    std::this_thread::sleep_for(thinking);
    return write(claims, {{transfer.from, from}, {transfer.to, to}});
  }

 private:
  static Resource resource(int account) { return Resource{"accounts/" + std::to_string(account)}; }

  std::int64_t balance(int account) {
    pqxx::nontransaction tx{connection_};
    return postgres::exec_row(tx, "SELECT balance FROM account WHERE id = $1", account)[0].as<std::int64_t>();
  }

  Verdict write(std::span<const Claim> claims, const std::vector<std::pair<int, std::int64_t>>& balances) {
    pqxx::work tx{connection_};
    if (is_guarded_) {
      for (const Ruling& ruling : postgres::admit_all_in(tx, claims)) {
        if (ruling.verdict != Verdict::admitted) return ruling.verdict;
      }
    }
    for (const auto& [account, balance] : balances) {
      postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = $2", balance, account);
    }
    postgres::commit(tx);
    return Verdict::admitted;
  }

  pqxx::connection connection_;
  std::unique_ptr<TokenSource> source_;
  postgres::Guard guard_;
  bool is_guarded_;
};

Tally run(const std::string& url, int count, bool is_guarded) {
  std::mt19937 random{std::random_device{}()};
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto bank = std::make_unique<Bank>(url, is_guarded);
  Tally tally;
  while (tally.done + tally.unknown < count) {
    const int from = 1 + below(accounts);
    const Transfer transfer{from, 1 + (from + below(accounts - 1)) % accounts, 1 + below(9)};
    try {
      (bank->attempt(transfer) == Verdict::admitted ? tally.done : tally.refused) += 1;
    } catch (const OutcomeUnknown&) {
      ++tally.unknown;
      bank = std::make_unique<Bank>(url, is_guarded);
    } catch (const Unavailable&) {
      ++tally.refused;  // nothing was written, as after a refusal; a holder that was cut needs a new
                        // connection
      bank = std::make_unique<Bank>(url, is_guarded);
    } catch (const pqxx::failure&) {
      ++tally.refused;  // of a statement before the commit
      bank = std::make_unique<Bank>(url, is_guarded);
    }
  }
  return tally;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return std::puts("usage: transfer_postgres postgres://USER@HOST/DATABASE COUNT [unguarded]"), 2;
  try {
    const Tally tally = run(argv[1], std::stoi(argv[2]), argc == 3);
    std::printf("%d done, %d refused and tried again, %d unknown\n", tally.done, tally.refused,
                tally.unknown);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transfer_postgres: %s\n", error.what());
    return 3;
  }
}
