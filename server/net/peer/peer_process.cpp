#include "server/net/peer/peer_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace fenceguard::net {
namespace {

constexpr std::uint64_t forked_without_exec = 0x40;  // PF_FORKNOEXEC, which is cleared as a program begins
constexpr int parents_max = 64;
#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;  // since Linux 6.5
#endif

// The state of a process in /proc/PID/stat.
struct Facts {
  Process process;
  pid_t parent = 0;
  bool is_copy = false;  // it has its parent's memory
};

std::string read_file(int folder, const char* name) {
  const Descriptor file{::openat(folder, name, O_RDONLY | O_CLOEXEC)};
  std::array<char, 4096> text{};
  const auto size = file.number() < 0 ? -1 : ::read(file.number(), text.data(), text.size());
  return size > 0 ? std::string{text.data(), static_cast<std::size_t>(size)} : std::string{};
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// Once a process is gone, what is read in its folder fails, though its id may have been given again.
class ProcessFolder {
 public:
  explicit ProcessFolder(pid_t id)
      : id_{id}, folder_{::open(fmt::format("/proc/{}", id).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)} {}

  [[nodiscard]] int number() const noexcept { return folder_.number(); }

  [[nodiscard]] std::optional<Facts> facts() const {
    constexpr std::size_t parent_at = 1, flags_at = 6, begin_at = 19, words_needed = 20;  // behind the name
    const auto text = read_file(folder_.number(), "stat");
    const auto name_end = text.rfind(") ");  // a name may hold anything
    if (name_end == std::string::npos) return std::nullopt;
    std::vector<std::string_view> words;
    for (std::string_view rest = std::string_view{text}.substr(name_end + 2);
         !rest.empty() && words.size() < words_needed;) {
      words.push_back(rest.substr(0, rest.find(' ')));
      rest.remove_prefix(std::min(rest.size(), words.back().size() + 1));
    }
    if (words.size() < words_needed) return std::nullopt;
    const auto parent = number_in<pid_t>(words[parent_at]);
    const auto flags = number_in<std::uint64_t>(words[flags_at]);
    const auto ticks = number_in<std::int64_t>(words[begin_at]);
    if (!parent || !flags || !ticks) return std::nullopt;
    return Facts{
        {id_, BootClock::time_point{*ticks * process_tick()}}, *parent, (*flags & forked_without_exec) != 0};
  }

 private:
  const pid_t id_;
  const Descriptor folder_;
};

// /proc may be another namespace's, whose ids are other processes.
bool is_proc_ours() {
  std::array<char, 32> text{};
  const auto size = ::readlink("/proc/self", text.data(), text.size());
  return size > 0 &&
         number_in<pid_t>({text.data(), static_cast<std::size_t>(size)}) == std::optional{::getpid()};
}

std::optional<Facts> facts_of(pid_t id) {
  if (id <= 0 || !is_proc_ours()) return std::nullopt;
  return ProcessFolder{id}.facts();
}

// A parent that began behind its child is another process that was given the id.
std::optional<Facts> parent_of(const Facts& child) {
  auto parent = facts_of(child.parent);
  if (parent && parent->process.begun > child.process.begun) return std::nullopt;
  return parent;
}

std::optional<Facts> facts_of(const Process& process) {
  auto facts = facts_of(process.id);
  if (facts && facts->process != process) return std::nullopt;
  return facts;
}

// Address and port, as sock_diag has them. False: it is not TCP.
bool add_to(const sockaddr_storage& address, __be32 (&host)[4], __be16& port, __u8& family) {
  family = static_cast<__u8>(address.ss_family);
  if (address.ss_family == AF_INET) {
    sockaddr_in inet{};
    std::memcpy(&inet, &address, sizeof inet);
    host[0] = inet.sin_addr.s_addr;
    port = inet.sin_port;
    return true;
  }
  if (address.ss_family != AF_INET6) return false;
  sockaddr_in6 inet{};
  std::memcpy(&inet, &address, sizeof inet);
  port = inet.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&inet.sin6_addr)) {
    family = AF_INET;
    std::memcpy(&host[0], &inet.sin6_addr.s6_addr[12], sizeof host[0]);
  } else {
    std::memcpy(host, &inet.sin6_addr, sizeof inet.sin6_addr);
  }
  return true;
}

// The inode of the socket of this network namespace that is bound to 'there' and connected to 'here'.
std::optional<std::uint32_t> inode_of(const sockaddr_storage& there, const sockaddr_storage& here) {
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  auto& id = request.body.id;
  __u8 family = 0;
  if (!add_to(here, id.idiag_dst, id.idiag_dport, family) ||
      !add_to(there, id.idiag_src, id.idiag_sport, request.body.sdiag_family))
    return std::nullopt;
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const Descriptor link{::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
  constexpr timeval limit{.tv_sec = 2, .tv_usec = 0};
  (void)::setsockopt(link.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::send(link.number(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  struct {
    nlmsghdr head;
    inet_diag_msg body;
    std::array<char, 4096> rest;
  } answer{};
  const auto size = ::recv(link.number(), &answer, sizeof answer, 0);
  const auto needed = static_cast<ssize_t>(sizeof answer.head + sizeof answer.body);
  if (size < needed || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  // Where there is no such connection it answers with what listens at that address.
  const auto& found = answer.body;
  if (found.idiag_state == TCP_LISTEN || found.id.idiag_sport != id.idiag_sport ||
      found.id.idiag_dport != id.idiag_dport || found.idiag_inode == 0)
    return std::nullopt;
  return found.idiag_inode;
}

// name: of a descriptor's link. Nothing: it is no socket.
std::optional<std::uint32_t> socket_inode(std::string_view name) {
  constexpr std::string_view begin = "socket:[";
  if (!name.starts_with(begin)) return std::nullopt;
  return number_in<std::uint32_t>(name.substr(begin.size()));
}

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Calls with the inode of each socket that is open in it.
template <class Found>
void list_sockets(const ProcessFolder& process, const Found& found) {
  const int number = ::openat(process.number(), "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (number < 0) return;
  const Folder folder{::fdopendir(number), ::closedir};
  if (!folder) {
    ::close(number);
    return;
  }
  std::array<char, 64> name{};
  while (const auto* entry = ::readdir(folder.get())) {
    const auto size = ::readlinkat(number, entry->d_name, name.data(), name.size());
    if (size <= 0) continue;
    if (const auto inode = socket_inode({name.data(), static_cast<std::size_t>(size)})) found(*inode);
  }
}

using Owners = std::map<std::uint32_t, std::vector<Process>>;

void find_owners(Owners& owners) {
  const Folder all{::opendir("/proc"), ::closedir};
  if (!all) return;
  while (const auto* entry = ::readdir(all.get())) {
    const auto id = number_in<pid_t>(entry->d_name);
    if (!id) continue;
    const ProcessFolder process{*id};
    list_sockets(process, [&](std::uint32_t inode) {
      const auto owner = owners.find(inode);
      if (owner == owners.end()) return;
      const auto facts = process.facts();
      auto& found = owner->second;
      if (facts && std::ranges::find(found, facts->process) == found.end()) found.push_back(facts->process);
    });
  }
}

}  // namespace

BootClock::duration process_tick() noexcept {
  static const auto tick =
      BootClock::duration{std::chrono::seconds{1}} / std::max(1L, ::sysconf(_SC_CLK_TCK));
  return tick;
}

std::optional<Process> find_process(pid_t id) {
  const auto facts = facts_of(id);
  if (!facts) return std::nullopt;
  return facts->process;
}

std::optional<BootClock::time_point> memory_begun(const Process& process) {
  auto facts = facts_of(process);
  for (int parents = 0; facts && facts->is_copy; ++parents) {
    if (parents == parents_max) return std::nullopt;
    facts = parent_of(*facts);
  }
  if (!facts) return std::nullopt;
  return facts->process.begun;
}

bool descends_from(const Process& process, const Process& ancestor) {
  auto facts = facts_of(process);
  for (int parents = 0; facts && parents <= parents_max; ++parents) {
    if (facts->process == ancestor) return true;
    facts = parent_of(*facts);
  }
  return false;
}

PeerEnd::PeerEnd(int socket) {
  socklen_t size = sizeof here_;
  socklen_t there_size = sizeof there_;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here_), &size) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&there_), &there_size) != 0)
    here_.ss_family = there_.ss_family = AF_UNSPEC;
  if (here_.ss_family != AF_UNIX) return;
  ucred peer{};
  size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  id_ = peer.pid;
  int holder = -1;
  size = sizeof holder;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &holder, &size) == 0)
    id_holder_ = std::make_shared<Descriptor>(holder);
}

// Of a process that is gone the id may be another's. Where there is no pidfd that cannot be seen: it would
// have had to connect, leave its socket to a child, end, and all other ids be given meanwhile.
std::optional<Process> PeerEnd::connecting_process() const {
  const auto process = find_process(id_);
  if (!process || !id_holder_) return process;
  const Descriptor ours{::open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const auto text = read_file(ours.number(), std::to_string(id_holder_->number()).c_str());
  if (text.find(fmt::format("Pid:\t{}\n", id_)) == std::string::npos) return std::nullopt;
  return process;
}

std::vector<std::vector<Process>> find_processes(const std::vector<PeerEnd>& ends) {
  std::vector<std::vector<Process>> found(ends.size());
  std::vector<std::optional<std::uint32_t>> inodes(ends.size());
  Owners owners;
  if (!is_proc_ours()) return found;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].here_.ss_family == AF_UNIX) {
      if (const auto process = ends[i].connecting_process()) found[i].push_back(*process);
    } else if ((inodes[i] = inode_of(ends[i].there_, ends[i].here_))) {
      owners[*inodes[i]];
    }
  }
  if (!owners.empty()) find_owners(owners);
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (inodes[i]) found[i] = owners[*inodes[i]];
  return found;
}

}  // namespace fenceguard::net
