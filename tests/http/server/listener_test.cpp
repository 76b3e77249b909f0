#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "guard/error.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

using ::testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
  // What listen() says against address.
  std::string refusal(const std::string& where) {
    try {
      return "bound as " + server.listen(where, handler, {});
    } catch (const Unavailable& error) {
      return error.what();
    }
  }

  // A socket file whose server is dead.
  void leave_socket_file() const {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    ASSERT_EQ(::listen(socket, 1), 0);
    ::close(socket);
  }

  void expect_served(const std::string& where) {
    RawClient client{where};
    ASSERT_TRUE(client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(client.receive().body, "GET /x ");
  }

  EchoHandler handler;
  test::TempDir folder;
  std::string path = folder.file("guard.sock");
  std::string address = "unix:" + path;
  Server server{1};
};

TEST_F(ListenerTest, PortInUseIsSaidInASentence) {
  const auto bound = server.listen("127.0.0.1:0", handler, {});
  EXPECT_THAT(refusal(bound),
              HasSubstr("cannot listen on " + bound + ": another process listens there already"));
}

TEST_F(ListenerTest, ForeignAddressIsSaidInASentence) {
  EXPECT_THAT(refusal("192.0.2.1:0"), HasSubstr("this machine has no such address"));
}

TEST_F(ListenerTest, MalformedAddressIsInvalidInput) {
  EXPECT_THROW((void)server.listen("nonsense", handler, {}), InvalidInput);
}

TEST_F(ListenerTest, NamesAndIpv6AreBound) {
  expect_served(server.listen("localhost:0", handler, {}));
  const auto bound = server.listen("[::1]:0", handler, {});
  EXPECT_EQ(bound.rfind("[::1]:", 0), 0U);
  expect_served(bound);
}

TEST_F(ListenerTest, UnixSocketIsServedAndItsFileRemovedAtTheEnd) {
  EXPECT_EQ(server.listen(address, handler, {}), address);
  expect_served(address);
  EXPECT_TRUE(server.drain(patience));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ListenerTest, FileOfADeadServerIsReplaced) {
  leave_socket_file();
  EXPECT_EQ(server.listen(address, handler, {}), address);
  expect_served(address);
}

TEST_F(ListenerTest, FileOfALiveServerIsInUse) {
  Server other{1};
  ASSERT_EQ(other.listen(address, handler, {}), address);
  EXPECT_THAT(refusal(address), HasSubstr("another process listens there already"));
  expect_served(address);
}

TEST_F(ListenerTest, OtherFilesAreLeftAlone) {
  std::ofstream{path} << "precious";
  EXPECT_THAT(refusal(address), HasSubstr("something else at that path"));
  EXPECT_EQ(std::filesystem::file_size(path), 8U);
}

TEST_F(ListenerTest, MissingFolderIsSaidInASentence) {
  EXPECT_THAT(refusal("unix:" + folder.file("no/such.sock")), HasSubstr("its folder does not exist"));
}

TEST_F(ListenerTest, ASocketFileOfAnotherProcessIsNotRemoved) {
  ASSERT_EQ(server.listen(address, handler, {}), address);
  std::filesystem::remove(path);
  Server successor{1};
  ASSERT_EQ(successor.listen(address, handler, {}), address);
  EXPECT_TRUE(server.drain(patience));
  expect_served(address);
}

}  // namespace
}  // namespace fenceguard::http
