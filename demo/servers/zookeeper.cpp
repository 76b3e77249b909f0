#include "demo/servers/zookeeper.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "adapters/zookeeper/wire/four_letter_words.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

// Its manifest names the other jars.
std::string find_jar(const std::string& name, const std::string& package) {
  for (const auto* folder : {"/usr/share/java/", "/usr/local/share/java/"})
    if (std::filesystem::exists(folder + name)) return folder + name;
  throw Unavailable(
      fmt::format("{} was not found in /usr/share/java, and this scenario runs a real ZooKeeper server; on "
                  "Debian it is in the package {}",
                  name, package));
}

}  // namespace

ZooKeeperServer::ZooKeeperServer(Harness& harness) : LocalServer{harness, "zookeeper"} {
  open();
}

Command ZooKeeperServer::command() {
  const auto data = folder() + "/data";
  std::filesystem::create_directories(data);
  const auto file = folder() + "/zoo.cfg";
  std::ofstream{file} << "tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n"
                         "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
                      << fmt::format("clientPort={}\ndataDir={}\n", port(), data);
  Command command{.program = "java", .package = "default-jre-headless"};
  // Quick to start, and small.
  command.arguments = {
      "-Xmx128m",
      "-XX:+UseSerialGC",
      "-XX:TieredStopAtLevel=1",
      "-XX:-UsePerfData",
      "-Xshare:auto",
      "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
      "-Dorg.slf4j.simpleLogger.logFile=" + log_file(),
      "-Dzookeeper.jmx.log4j.disable=true",
      "-Dzookeeper.preAllocSize=1024",
      "-cp",
      find_jar("slf4j-simple.jar", "libslf4j-java") + ':' + find_jar("zookeeper.jar", "libzookeeper-java"),
      "org.apache.zookeeper.server.quorum.QuorumPeerMain",
      file};
  return command;
}

// It has its data in our folder.
bool ZooKeeperServer::serves() {
  const auto words = [this](std::string_view word) {
    return zookeeper::ask_server(host(), word).value_or("");
  };
  return words("conf").find(folder()) != std::string::npos && zookeeper::after(words("srvr"), "Mode: ");
}

std::int64_t ZooKeeperServer::figure(const std::string& name) const {
  const auto text =
      zookeeper::after(zookeeper::ask_server(host(), "mntr").value_or(""), fmt::format("zk_{}\t", name));
  const auto number = text ? parse_decimal(text->substr(0, text->find('.'))) : std::nullopt;
  if (!number) throw Unavailable(fmt::format("the ZooKeeper server lists no {}", name));
  return *number;
}

// Of the lines of a stack trace the last cause says it.
bool ZooKeeperServer::is_reason(const std::string& line) const {
  return line.find("ERROR") != line.npos || line.find("Caused by: ") != line.npos ||
         line.find("Exception: ") != line.npos;
}

}  // namespace fenceguard::demo
