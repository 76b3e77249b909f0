// The load of redis_sidecar_bench.py: one thread, so many connections, each with a flight of equal commands
// under way at a time, as redis-benchmark does; but each connection may say something first, such as FENCE,
// and what is answered with an error is counted.
//
//   resp_load PORT CONNECTIONS FLIGHT SECONDS FIRST COMMAND      of words, which spaces part; FIRST may be
//   empty
//
// Prints 'RATE COUNT P50_MS P99_MS ERRORS': commands a second, and how long flights took.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

std::string encoded(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size();) {
    const auto end = std::min(line.find(' ', at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

struct Connection {
  int socket = -1;
  std::string input;
  std::size_t left = 0;  // replies of the flight
  Clock::time_point sent;
};

void send_all(int socket, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto sent = ::send(socket, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) throw std::runtime_error{"the server hung up"};
    at += static_cast<std::size_t>(sent);
  }
}

// Takes whole replies off the input: statuses, errors, numbers and texts.
std::size_t take_replies(std::string& input, std::size_t& errors) {
  std::size_t count = 0, at = 0;
  for (;;) {
    const auto end = input.find("\r\n", at);
    if (end == input.npos) break;
    auto next = end + 2;
    if (input[at] == '$' && input[at + 1] != '-')
      next += static_cast<std::size_t>(std::atoll(input.c_str() + at + 1)) + 2;
    if (next > input.size()) break;
    if (input[at] == '-') {
      if (errors++ == 0) std::fprintf(stderr, "resp_load: %s\n", input.substr(at, end - at).c_str());
    }
    at = next;
    ++count;
  }
  input.erase(0, at);
  return count;
}

void receive(Connection& connection, std::size_t& errors) {
  char bytes[65536];
  const auto got = ::recv(connection.socket, bytes, sizeof bytes, 0);
  if (got <= 0) throw std::runtime_error{"the server hung up"};
  connection.input.append(bytes, static_cast<std::size_t>(got));
  connection.left -= std::min(connection.left, take_replies(connection.input, errors));
}

int connect_to(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error{"nothing listens on port " + std::to_string(port)};
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

double at_share(std::vector<double>& sorted, double share) {
  return sorted.empty() ? 0
                        : sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void run(int port, std::size_t count, std::size_t flight, double seconds, const std::string& first,
         const std::string& command) {
  std::string text;
  for (std::size_t i = 0; i < flight; ++i) text += command;
  std::vector<Connection> connections(count);
  std::size_t errors = 0, done = 0;
  std::vector<double> took;
  const int poll = ::epoll_create1(0);
  for (auto& connection : connections) {
    connection.socket = connect_to(port);
    if (!first.empty()) {
      send_all(connection.socket, first);
      for (connection.left = 1; connection.left > 0;) receive(connection, errors);
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &connection;
    ::epoll_ctl(poll, EPOLL_CTL_ADD, connection.socket, &event);
  }
  const auto begun = Clock::now();
  const auto end =
      begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{seconds});
  const auto begin_flight = [&](Connection& connection, Clock::time_point now) {
    connection.left = flight;
    connection.sent = now;
    send_all(connection.socket, text);
  };
  for (auto& connection : connections) begin_flight(connection, Clock::now());
  for (std::size_t open = count; open > 0;) {
    epoll_event events[128];
    const int ready = ::epoll_wait(poll, events, 128, 10'000);
    if (ready <= 0) throw std::runtime_error{"no answer for 10 s"};
    const auto now = Clock::now();
    for (int i = 0; i < ready; ++i) {
      auto& connection = *static_cast<Connection*>(events[i].data.ptr);
      receive(connection, errors);
      if (connection.left > 0) continue;
      took.push_back(std::chrono::duration<double, std::milli>(now - connection.sent).count());
      done += flight;
      now < end ? begin_flight(connection, now) : void(--open);
    }
  }
  const double spent = std::chrono::duration<double>(Clock::now() - begun).count();
  std::ranges::sort(took);
  std::printf("%.1f %zu %.4f %.4f %zu\n", static_cast<double>(done) / spent, done, at_share(took, 0.5),
              at_share(took, 0.99), errors);
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 7) throw std::runtime_error{"usage: PORT CONNECTIONS FLIGHT SECONDS FIRST COMMAND"};
    const std::string first = words[5];
    run(std::atoi(words[1]), std::stoul(words[2]), std::stoul(words[3]), std::atof(words[4]),
        first.empty() ? first : encoded(first), encoded(words[6]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "resp_load: %s\n", error.what());
    return 1;
  }
}
