// An ensemble that is set back to a backup under a service that lives on.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "guard/error.hpp"
#include "tests/process/eventually.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

constexpr auto long_session = "?session_timeout=60s";

void replace_folder(const std::string& from, const std::string& to) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

// A server that is starting may take a connection and never answer on it, which a client with a long session
// notices late. Nothing was written then.
template <class Write>
Ruling once_served(Write write) {
  std::optional<Ruling> ruling;
  const auto is_served = [&] {
    try {
      ruling = write().ruling;
      return true;
    } catch (const Unavailable&) {
      return false;
    }
  };
  wait_until(is_served, std::chrono::seconds{90});
  return *ruling;
}

// The guard remembers a fence of version 1 that the backup does not know, and its session outlives the
// restore. Then another fence of version 1 comes about: only the connection that broke tells them apart.
TEST(Restore, AGuardForgetsWhatItSawBeforeTheConnectionBroke) {
  Ensemble ensemble{1};
  Space space{ensemble};
  const auto path = space.data("x");
  (void)space.session()->create(path, "");
  zookeeper::Client client{space.url(long_session)};
  zookeeper::Guard guard{client};
  ASSERT_EQ(guard.advance(claim_of("r", 10)).verdict, Verdict::admitted);
  const auto session = client.connection().session;
  const auto session_id = session->id();

  auto& server = ensemble.node(0);
  const TempDir backup;
  server.stop();
  replace_folder(server.data(), backup.file("data"));
  server.start();
  ensemble.wait_until_serving();
  const auto write = [&](const std::string& value) {
    return once_served([&] { return guard.write(claim_of("r", 20), {zookeeper::set(path, value)}); });
  };
  ASSERT_EQ(write("20").verdict, Verdict::admitted);
  ASSERT_EQ(space.get(space.client().paths().fence(Resource{"r"})).stat.version, 1);

  server.stop();
  replace_folder(backup.file("data"), server.data());
  server.start();
  ensemble.wait_until_serving();
  zookeeper::Client other{space.url()};
  zookeeper::Guard newer{other};
  ASSERT_EQ(newer.write(claim_of("r", 30), {zookeeper::set(path, "30")}).ruling.verdict, Verdict::admitted);
  ASSERT_EQ(other.connection().session->get(client.paths().fence(Resource{"r"})).stat.version, 1)
      << "or this test shows nothing";
  // A server does not take a client back that has seen more than it has.
  for (int i = 0; i < 200; ++i) (void)other.connection().session->set(path, "30");

  EXPECT_EQ(write("late").verdict, Verdict::stale);
  EXPECT_EQ(session->id(), session_id);
  EXPECT_EQ(session->state(), zookeeper::Session::State::connected) << "its session did not live on";
  EXPECT_EQ(other.connection().session->get(path).data, "30");
}

// The fences of the backup are what the surviving history holds; init lifts the floor above what was lost.
TEST(Restore, AfterInitNoTokenOfTheLostHistoryIsAdmitted) {
  Ensemble ensemble{1};
  Space space{ensemble};
  auto& server = ensemble.node(0);
  const TempDir backup;
  server.stop();
  replace_folder(server.data(), backup.file("data"));
  server.start();
  ensemble.wait_until_serving();
  {
    zookeeper::Client client{space.url()};
    zookeeper::Guard guard{client};
    ASSERT_EQ(guard.advance(claim_of("r", 20)).verdict, Verdict::admitted);
  }
  server.stop();
  replace_folder(backup.file("data"), server.data());
  server.start();
  ensemble.wait_until_serving();
  zookeeper::Client client{space.url()};
  zookeeper::Guard guard{client};
  EXPECT_EQ(zookeeper::init(client, 20), 20);
  EXPECT_EQ(guard.advance(claim_of("r", 20)).verdict, Verdict::stale);
  EXPECT_EQ(guard.advance(claim_of("r", 21)).verdict, Verdict::admitted);
}

}  // namespace
}  // namespace fenceguard::test
