#include "guard/cli/demo_story.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <memory>

#include "adapters/schemes.hpp"
#include "guard/cli/demo_messages.hpp"
#include "guard/cli/output.hpp"
#include "guard/error.hpp"
#include "guard/http/client.hpp"
#include "guard/percent.hpp"

namespace fenceguard::demo {
namespace {

// How much longer than its lease a client is stopped, at least.
constexpr std::chrono::milliseconds beyond_the_lease{100};
constexpr std::chrono::seconds answer_limit{5};

std::chrono::microseconds now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(BootClock::now().time_since_epoch());
}

std::string last_line_of(const std::string& file) {
  std::ifstream stream{file};
  std::string last;
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) last = line;
  return last;
}

// A running 'fenceguard serve'.
class Server {
 public:
  Server(const GcPauseStage& stage, Interrupts& interrupts) : child_{interrupts, options(stage)} {
    try {
      read_addresses(child_.receive_line());
    } catch (const Unavailable&) {
      const auto reason = last_line_of(stage.log_file);
      throw Unavailable(fmt::format("the demonstration's server did not start: {}",
                                    reason.empty() ? "no reason given" : reason));
    }
  }

  [[nodiscard]] const std::string& data() const { return data_; }
  [[nodiscard]] const std::string& control() const { return control_; }
  void end() { child_.end(); }

 private:
  static ChildOptions options(const GcPauseStage& stage) {
    ChildOptions options;
    options.arguments = {"serve", "--control", "127.0.0.1:0", "--log-level", "warning"};
    if (stage.place.empty()) options.arguments.insert(options.arguments.end(), {"--listen", "127.0.0.1:0"});
    const bool draws_its_floor = !stage.source.empty() || !stage.state.empty();
    if (stage.initialise && draws_its_floor) options.arguments.emplace_back("--init");
    // Not as arguments, which everybody on the machine can read: they may hold passwords.
    options.environment["FENCEGUARD_STORAGE"] = stage.storage;
    if (!stage.source.empty()) options.environment["FENCEGUARD_SOURCE"] = stage.source;
    if (!stage.state.empty()) options.environment["FENCEGUARD_STATE"] = stage.state;
    options.log_file = stage.log_file;
    return options;
  }

  void read_addresses(const std::string& line) {
    const auto after = [&line](std::string_view name) {
      const auto at = line.find(name);
      if (at == std::string::npos) throw Unavailable("no address");
      const auto start = at + name.size();
      return "http://" + line.substr(start, line.find(' ', start) - start);
    };
    data_ = after("data=");
    control_ = after("control=");
  }

  Child child_;
  std::string data_;
  std::string control_;
};

// A place of the demonstration's own in a storage that its clients write to themselves; gone with its owner.
class Place {
 public:
  Place(const std::string& storage, const std::string& name)
      : door_{schemes().open_direct(Url::parse(storage), name)} {
    door_->make_place();
  }
  ~Place() {
    try {
      if (door_) door_->remove_place();
    } catch (const std::exception& error) {
      cli::complain(fmt::format("demo: {}", error.what()));
    }
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] DirectDoor& door() { return *door_; }

 private:
  std::unique_ptr<DirectDoor> door_;
};

class Story {
 public:
  Story(const GcPauseStage& stage, Run& run, Interrupts& interrupts)
      : stage_{stage},
        run_{run},
        interrupts_{interrupts},
        place_{stage.place.empty() ? nullptr : std::make_unique<Place>(stage.storage, stage.place)},
        server_{stage, interrupts},
        control_{server_.control(), answer_limit},
        own_door_{place_ ? nullptr : schemes().open_unguarded(Url::parse(stage.storage))},
        door_{place_ ? place_->door() : *own_door_} {}

  void tell() {
    door_.write(stage_.resource, std::to_string(run_.initial));
    Child a{interrupts_, {.arguments = {"demo-client", "A"}, .environment = {}, .log_file = {}}};
    Child b{interrupts_, {.arguments = {"demo-client", "B"}, .environment = {}, .log_file = {}}};
    start_ = now();

    a.send_line(encode(task_of(Party::a)));
    run_to_work(a);
    a.pause();
    note(Step::stopped);
    const auto stopped_at = BootClock::now();
    a.send_line("");  // lies in the pipe until A goes on

    b.send_line(encode(task_of(Party::b)));
    run_to_end(b);

    interrupts_.wait_readable(-1, stopped_at + run_.ttl + beyond_the_lease);
    note(Step::continued);
    a.resume();
    run_to_end(a);
    conclude();
  }

 private:
  [[nodiscard]] ClientTask task_of(Party who) const {
    ClientTask task;
    task.who = who;
    task.control = server_.control();
    task.data = server_.data();
    if (!run_.guarded || run_.direct) task.door = stage_.storage;
    task.place = stage_.place;
    task.guarded = run_.guarded;
    task.resource = stage_.resource;
    task.add = who == Party::a ? run_.add_a : run_.add_b;
    task.ttl = run_.ttl;
    return task;
  }

  // What A is made to do rather than does.
  void note(Step step) {
    Event event;
    event.step = step;
    event.who = Party::a;
    event.began = event.ended = now();
    run_.events.push_back(event);
  }

  // Records what the client tells until it is in the middle of its work (true) or has finished (false).
  bool run_to_work(Child& client) {
    while (true) {
      const auto message = decode_message(client.receive_line());
      if (const auto* failed = std::get_if<Failed>(&message))
        throw Unavailable("a client: " + failed->reason);
      if (std::holds_alternative<AtWork>(message)) return true;
      if (std::holds_alternative<Finished>(message)) return false;
      auto event = std::get<Event>(message);
      if (event.step == Step::lock_granted) event.highest = fence();
      run_.events.push_back(event);
    }
  }

  void run_to_end(Child& client) {
    while (run_to_work(client)) client.send_line("");
  }

  // The newest token that the guard knows for the account.
  std::optional<Token> fence() {
    const auto response = control_.send({.method = "GET",
                                         .target = "/v1/fences/" + percent_encode_path(stage_.resource),
                                         .fields = {},
                                         .body = {}});
    if (response.status != 200) return std::nullopt;
    boost::system::error_code error;
    const auto body = boost::json::parse(response.body, error);
    if (error || !body.is_object()) return std::nullopt;
    const auto* token = body.as_object().if_contains("token");
    return token && token->is_string() ? Token::parse(token->as_string().c_str()) : std::nullopt;
  }

  void conclude() {
    const auto balance = door_.read(stage_.resource);
    run_.final_balance = balance ? parse_decimal(*balance) : std::nullopt;
    std::ranges::stable_sort(run_.events, {}, &Event::ended);
    for (auto& event : run_.events) {
      event.began -= start_;
      event.ended -= start_;
    }
    if (stage_.is_borrowed && !place_) remove_account();
    server_.end();
  }

  // Through the guard and under the lock, as everybody has to.
  void remove_account() {
    http::Request asking{.method = "POST", .target = "/v1/leases", .fields = {}, .body = {}};
    asking.fields.add("Content-Type", "application/json");
    asking.body = boost::json::serialize(
        boost::json::object{{"resource", stage_.resource}, {"ttl_ms", 5'000}, {"wait_ms", 2'000}});
    const auto granted = control_.send(asking);
    boost::system::error_code error;
    const auto grant = boost::json::parse(granted.body, error);
    if (granted.status != 201 || error) throw Unavailable("the demonstration's account could not be removed");
    http::Request removal{
        .method = "DELETE", .target = '/' + percent_encode_path(stage_.resource), .fields = {}, .body = {}};
    removal.fields.add("Fencing-Token", grant.at("token").as_string().c_str());
    removal.fields.add("Fencing-Holder", grant.at("holder").as_string().c_str());
    const auto removed = http::Client{server_.data(), answer_limit}.send(removal);
    if (removed.status >= 300) throw Unavailable("the demonstration's account could not be removed");
    removal.target = "/v1/leases" + removal.target;
    (void)control_.send(removal);
  }

  const GcPauseStage& stage_;
  Run& run_;
  Interrupts& interrupts_;
  std::unique_ptr<Place> place_;  // outlives whatever writes there
  Server server_;
  http::Client control_;
  std::unique_ptr<UnguardedDoor> own_door_;
  UnguardedDoor& door_;
  std::chrono::microseconds start_{};
};

}  // namespace

Run tell_gc_pause(const GcPauseStage& stage, bool guarded, Interrupts& interrupts) {
  Run run;
  run.guarded = guarded;
  run.direct = !stage.place.empty();
  run.resource = stage.resource;
  Story{stage, run, interrupts}.tell();
  return run;
}

}  // namespace fenceguard::demo
