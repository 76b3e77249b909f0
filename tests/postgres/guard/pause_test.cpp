// A holder that stops between its admission and its commit: killed, or stopped for longer than anybody waits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"
#include "tests/postgres/guard/accounts.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;

// A process of its own that stops in the middle of a guarded write, and says by its exit status how that
// ended.
class StoppedHolder {
 public:
  enum Ending { done = 10, refused, nothing, unknown, other };

  explicit StoppedHolder(const std::function<Verdict()>& write) : pid_{fork()} {
    if (pid_ != 0) return;
    _exit(ending_of(write));
  }
  ~StoppedHolder() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StoppedHolder(const StoppedHolder&) = delete;
  StoppedHolder& operator=(const StoppedHolder&) = delete;

  void wait_until_stopped() const {
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
  }

  // Wakes it up and hears how it ended.
  Ending wake() {
    kill(pid_, SIGCONT);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? static_cast<Ending>(WEXITSTATUS(status)) : other;
  }

 private:
  static Ending ending_of(const std::function<Verdict()>& write) {
    try {
      return write() == Verdict::admitted ? done : refused;
    } catch (const OutcomeUnknown&) {
      return unknown;
    } catch (const Unavailable&) {
      return nothing;
    } catch (const pqxx::failure&) {
      return nothing;  // of a statement before any COMMIT
    } catch (const std::exception&) {
      return other;
    }
  }

  pid_t pid_;
};

class Pause : public Accounts {
 protected:
  // What a session that ends inside the function is, where the library can see what was sent.
  static constexpr auto cut_off = PQXX_VERSION_MAJOR < 7 ? StoppedHolder::refused : StoppedHolder::unknown;

  // Writes 60 under token 33, and stops itself between the admission and the write or, then, the commit.
  std::function<Verdict()> stopping(bool is_before_write) {
    return [this, is_before_write] {
      const auto connection = database_.connect();
      return postgres::Guard{*connection}
          .write(claim(33, "a"),
                 [&](pqxx::work& tx) {
                   if (is_before_write) raise(SIGSTOP);
                   tx.exec("UPDATE account SET balance = 60 WHERE id = 42");
                   if (!is_before_write) raise(SIGSTOP);
                 })
          .verdict;
    };
  }
};

TEST_F(Pause, AHolderThatWasStoppedIsCutAndHasWrittenNothing) {
  connection_.reset();
  for (const bool is_before_write : {true, false}) {
    database_.run("DELETE FROM fenceguard.fences");
    StoppedHolder holder{stopping(is_before_write)};
    holder.wait_until_stopped();
    const auto connection = database_.connect();
    postgres::Guard next{*connection, {.drain = 100ms}};
    const auto begun = std::chrono::steady_clock::now();
    ASSERT_EQ(next.advance(claim(34, "b")).verdict, Verdict::admitted);
    EXPECT_GE(std::chrono::steady_clock::now() - begun, 100ms);
    EXPECT_EQ(balance(), 100);
    // The commit's lost connection is unknown, although here it was cut before.
    EXPECT_EQ(holder.wake(), is_before_write ? cut_off : StoppedHolder::unknown);
    EXPECT_EQ(balance(), 100);
    EXPECT_EQ(fence(), "34 b ");
  }
}

// Stale only where nothing that was sent can have ended the transaction. What is the caller's own passes
// through, also beside a session that has ended, or by another connection.
TEST_F(Pause, AnEndOfTheSessionIsStaleWhereThatIsCertain) {
  const auto end = [&](const pqxx::transaction_base& tx) {
    database_.run(fmt::format("SELECT pg_terminate_backend({}, 10000)", tx.conn().backendpid()));
  };
  const auto write = [&](const auto& apply) {
    const auto connection = database_.connect();
    const auto ruling = postgres::Guard{*connection}.write(claim(34), apply);
    EXPECT_EQ(ruling.verdict, Verdict::stale);
    EXPECT_EQ(ruling.highest, 0);
  };
  const std::string update = "UPDATE account SET balance = 70 WHERE id = 42";
  const auto lose = [&](pqxx::work& tx) {
    end(tx);
    tx.exec(update);
  };
  const auto lose_certainly = [&](pqxx::work& tx) {
    set_balance(tx, 70);
    tx.exec(update);
    lose(tx);
  };
  if (cut_off == StoppedHolder::refused) {
    write(lose_certainly);
  } else {
    EXPECT_THROW(write(lose_certainly), OutcomeUnknown);
  }
  EXPECT_THROW(write([&](pqxx::work& tx) {
                 end(tx);
                 throw std::domain_error{"not enough"};
               }),
               std::domain_error);
  EXPECT_THROW(write([&](pqxx::work&) { throw pqxx::broken_connection{"of another"}; }),
               pqxx::broken_connection);
  EXPECT_THROW(write([&](pqxx::work&) {
                 const auto other = database_.connect();
                 pqxx::nontransaction tx{*other};
                 tx.exec("DO $$BEGIN RAISE 'of another' USING ERRCODE = '57P01'; END$$");
               }),
               pqxx::sql_error);
  EXPECT_EQ(balance(), 100);

  // It did end before: by a text, by what is seen only once it is answered, or by what is never seen.
  const std::vector<std::function<void(pqxx::work&)>> endings{
      [&](pqxx::work& tx) { tx.exec(update + "; COMMIT"); },
      [&](pqxx::work& tx) { tx.exec(update + "; /**/End; BEGIN"); },
      [&](pqxx::work& tx) {
        tx.exec(update);
        postgres::exec_params(tx, "COMMIT");
        postgres::exec_params(tx, "BEGIN");
      },
      [&](pqxx::work& tx) { tx.exec(update + "; COMMIT; SELECT pg_terminate_backend(pg_backend_pid())"); },
      [&](pqxx::work& tx) {
        try {
          tx.exec(update + "; COMMIT; SELECT pg_terminate_backend(pg_backend_pid())");
        } catch (const std::exception&) {
        }
      },
  };
  for (const auto& ending : endings) {
    database_.run("UPDATE account SET balance = 100 WHERE id = 42");
    EXPECT_THROW(write([&](pqxx::work& tx) {
                   ending(tx);
                   lose(tx);
                 }),
                 OutcomeUnknown);
    EXPECT_EQ(balance(), 70);
  }
  // Under way where the session ended, and not seen.
  EXPECT_THROW(write([&](pqxx::work& tx) {
                 end(tx);
                 postgres::exec_params(tx, "COMMIT");
               }),
               OutcomeUnknown);
}

TEST_F(Pause, WaitersAreUnavailableUntilTheHolderIsDone) {
  connection_.reset();
  StoppedHolder holder{stopping(false)};
  holder.wait_until_stopped();
  const auto connection = database_.connect();
  postgres::Guard next{*connection, {.drain = 50ms, .cut = false}};
  EXPECT_THROW((void)next.advance(claim(34, "b")), Unavailable);
  EXPECT_THROW((void)next.execute(claim(34, "b"), "UPDATE account SET balance = 1"), Unavailable);
  EXPECT_EQ(holder.wake(), StoppedHolder::done);
  EXPECT_EQ(balance(), 60);
  EXPECT_EQ(next.advance(claim(34, "b")).verdict, Verdict::admitted);
}

TEST_F(Pause, BackendEndedBetweenAdmissionAndCommitWroteNothing) {
  const auto end_backend = [&](const pqxx::transaction_base& tx) {
    database_.run(fmt::format("SELECT pg_terminate_backend({}, 10000)", tx.conn().backendpid()));
  };
  for (int round = 0; round < 10; ++round) {
    const auto connection = database_.connect();
    postgres::Guard guard{*connection};
    const auto write = [&] {
      return guard.write(claim(34), [&](pqxx::work& tx) {
        set_balance(tx, 70);
        end_backend(tx);
      });
    };
    // The COMMIT may have been sent into a connection that was closed only then.
    try {
      (void)write();
      ADD_FAILURE() << "reported as committed";
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == FaultKind::unknown || error.kind() == FaultKind::unavailable);
    }
    EXPECT_EQ(balance(), 100);
    EXPECT_EQ(fence(), "");
  }
}

// After the loss nothing of the old transaction reaches the server by a connection that libpqxx opens anew.
TEST_F(Pause, WhatIsSentAfterTheLossIsNotWrittenOutsideOfTheTransaction) {
  pqxx::work tx{*connection_};
  ASSERT_EQ(postgres::admit_in(tx, claim(34)).verdict, Verdict::admitted);
  database_.run(fmt::format("SELECT pg_terminate_backend({}, 10000)", connection_->backendpid()));
  for (int i = 0; i < 3; ++i) {
    EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = 1"));
    EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = $1", 1));
  }
  EXPECT_ANY_THROW(tx.exec("UPDATE account SET balance = 1"));
  EXPECT_ANY_THROW(tx.exec("UPDATE account SET balance = 1"));
  EXPECT_ANY_THROW(tx.commit());
  EXPECT_EQ(balance(), 100);
}

}  // namespace
}  // namespace fenceguard::test
