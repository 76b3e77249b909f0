// The connection is lost in the middle of a guarded write: what is reported must agree with what is in the
// database. A proxy cuts at every message in turn, until a write passes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/token_source.hpp"
#include "adapters/mariadb/versioned_table.hpp"
#include "tests/mariadb/guard/accounts.hpp"
#include "tests/process/eventually.hpp"
#include "tests/process/message_cut.hpp"

namespace fenceguard::mariadb::test {
namespace {

using fenceguard::test::eventually;
using fenceguard::test::MessageCut;
using fenceguard::test::Proxy;
using From = Proxy::Direction;
using Cut = MessageCut::At;

// Three bytes of length, the lowest first, which leave the head out, and one of a number.
MessageCut::Framing messages() {
  const auto byte = [](std::string_view head, std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(head[at]));
  };
  return {.head_bytes = [](From, bool) { return std::size_t{4}; },
          .size =
              [byte](std::string_view head) {
                return 4 + byte(head, 0) + (byte(head, 1) << 8) + (byte(head, 2) << 16);
              }};
}

enum class Ending { done, nothing, unknown };

class Unknown : public Accounts {
 protected:
  template <class Call>
  static Ending end_of(const Call& call) {
    try {
      call();
      return Ending::done;
    } catch (const OutcomeUnknown&) {
      return Ending::unknown;
    } catch (const Unavailable&) {
      return Ending::nothing;
    } catch (const ConnectionLost&) {
      return Ending::nothing;  // of the caller's own statement, before any COMMIT
    }
  }
  // A session that ended before its COMMIT is stale.
  static void expect_admitted(const Ruling& ruling) {
    if (ruling.verdict == Verdict::stale) throw Unavailable("the session ended");
    EXPECT_EQ(ruling.verdict, Verdict::admitted);
  }

  // What the server still works on is over when its session is gone.
  void wait_until_alone() {
    ASSERT_TRUE(eventually([&] {
      return *connection_.run(
                 "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> "
                 "CONNECTION_ID()")[0][0] == "0";
    }));
  }

  // Cuts at the first, second, … message of each side, until nothing is cut any more. call(url, n) does what
  // is tried, and is_done(n) looks whether it was done.
  void cut_everywhere(const std::function<void(const Url&, int)>& call,
                      const std::function<bool(int)>& is_done) {
    int unknown = 0;
    int landed = 0;
    for (const auto from : {From::to_server, From::to_client}) {
      for (const auto at : {Cut::before, Cut::within, Cut::after}) {
        bool was_cut = true;
        for (int number = 0; was_cut; ++number) {
          SCOPED_TRACE(fmt::format("message {} of the {}, cut {}", number,
                                   from == From::to_server ? "client" : "server", static_cast<int>(at)));
          ASSERT_LT(number, 80);
          const int value = ++value_;
          cut_.arm(from, number, at);
          const auto ending =
              end_of([&] { call(database_.url("&timeout=20s", std::to_string(proxy_.port())), value); });
          was_cut = cut_.disarm();
          wait_until_alone();
          const bool was_done = is_done(value);
          if (ending == Ending::done) {
            EXPECT_TRUE(was_done);
          }
          if (ending == Ending::nothing) {
            EXPECT_FALSE(was_done);
          }
          if (!was_cut) {
            EXPECT_EQ(ending, Ending::done);
          }
          unknown += ending == Ending::unknown ? 1 : 0;
          landed += ending == Ending::unknown && was_done ? 1 : 0;
        }
      }
    }
    // Both kinds of unknown were seen: what took effect, and what did not.
    EXPECT_GT(landed, 0);
    EXPECT_GT(unknown, landed);
  }

  MessageCut cut_{messages()};
  Proxy proxy_{std::stoi(server_setting("PORT")), cut_.filter()};
  int value_ = 1'000;
};

TEST_F(Unknown, AWriteThatIsCutAnywhereEndsAsTheDatabaseSays) {
  cut_everywhere(
      [](const Url& url, int value) {
        Connection connection{address_of(url)};
        expect_admitted(Guard{connection}.write(claim(34).with(Sequence{value}),
                                                [&](Connection& tx) { set_balance(tx, value); }));
      },
      [&](int value) { return balance() == value; });
}

TEST_F(Unknown, AWriteWhoseFunctionSwallowsTheLossEndsAsTheDatabaseSays) {
  cut_everywhere(
      [](const Url& url, int value) {
        Connection connection{address_of(url)};
        expect_admitted(Guard{connection}.write(claim(34), [&](Connection& tx) {
          for (int i = 0; i < 2; ++i) {
            try {
              set_balance(tx, value);
            } catch (const std::exception&) {
            }
          }
        }));
      },
      [&](int value) { return balance() == value; });
}

TEST_F(Unknown, ATransactionOfTheCallersEndsAsTheDatabaseSays) {
  ASSERT_EQ(Guard{connection_}.advance(claim(34)).verdict, Verdict::admitted);
  cut_everywhere(
      [](const Url& url, int value) {
        Connection connection{address_of(url)};
        connection.run("START TRANSACTION");
        EXPECT_EQ(admit_in(connection, claim(34)).verdict, Verdict::admitted);
        set_balance(connection, value);
        commit(connection, claim(34));
      },
      [&](int value) { return balance() == value; });
}

TEST_F(Unknown, AnAdvanceThatIsCutAnywhereEndsAsTheDatabaseSays) {
  cut_everywhere(
      [](const Url& url, int value) {
        Connection connection{address_of(url)};
        EXPECT_EQ(Guard{connection}.advance(claim(value)).verdict, Verdict::admitted);
      },
      [&](int value) { return highest() == std::to_string(value); });
}

TEST_F(Unknown, ARowOfAVersionedTableThatIsCutAnywhereEndsAsTheDatabaseSays) {
  database_.run(
      "ALTER TABLE account ADD version BIGINT NOT NULL DEFAULT 0, ADD token BIGINT, ADD holder VARCHAR(128)");
  const VersionedTable accounts{connection_,
                                {database_.name(), "account", {"id"}, "version", "token", "holder"}};
  const auto token = [&] { return accounts.read(connection_, {"42"})->values.at("token").value_or("0"); };
  cut_everywhere(
      [&](const Url& url, int value) {
        Connection connection{address_of(url)};
        EXPECT_EQ(accounts.fenced_read(connection, claim(value), {"42"}).verdict, RowVerdict::admitted);
      },
      [&](int value) { return token() == std::to_string(value); });
  cut_everywhere(
      [&](const Url& url, int value) {
        const auto seen = *accounts.read(connection_, {"42"});
        Connection connection{address_of(url)};
        EXPECT_EQ(
            accounts.update(connection, claim(value), seen, {{"balance", std::to_string(value)}}).verdict,
            RowVerdict::admitted);
      },
      [&](int value) { return balance() == value; });
}

TEST_F(Unknown, AGrantThatIsCutAnywhereEndsAsTheDatabaseSays) {
  cut_everywhere(
      [](const Url& url, int value) {
        const auto source = open_source(url);
        const auto answer = source->try_acquire(Resource{fmt::format("lock/{}", value)}, Holder{"h"},
                                                std::chrono::milliseconds{60'000});
        EXPECT_TRUE(std::holds_alternative<Grant>(answer));
      },
      [&](int value) {
        return !database_.run(fmt::format("SELECT 1 FROM leases WHERE resource = 'lock/{}'", value)).empty();
      });
}

}  // namespace
}  // namespace fenceguard::mariadb::test
