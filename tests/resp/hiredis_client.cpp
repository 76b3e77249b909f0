// hiredis against the sidecar: hiredis_client PORT. Prints each answer as 'type text'; between 'ready' and
// the line that it waits for, a newer holder advances.

#include <hiredis/hiredis.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using Reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

void print(const redisReply& reply) {
  switch (reply.type) {
    case REDIS_REPLY_ERROR:
      std::cout << "error " << reply.str << '\n';
      break;
    case REDIS_REPLY_INTEGER:
      std::cout << "integer " << reply.integer << '\n';
      break;
    case REDIS_REPLY_NIL:
      std::cout << "nil\n";
      break;
    case REDIS_REPLY_ARRAY:
      std::cout << "array " << reply.elements << '\n';
      break;
    default:
      std::cout << "text " << reply.str << '\n';
  }
}

// In one flight.
void run(redisContext* connection, const std::vector<const char*>& commands) {
  for (const auto* command : commands) redisAppendCommand(connection, command);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    void* answer = nullptr;
    if (redisGetReply(connection, &answer) != REDIS_OK) {
      std::cout << "broken " << connection->errstr << std::endl;
      std::exit(1);
    }
    print(*Reply{static_cast<redisReply*>(answer), freeReplyObject});
  }
}

}  // namespace

int main(int /*count*/, char** words) {
  const std::unique_ptr<redisContext, decltype(&redisFree)> connection{
      redisConnect("127.0.0.1", std::atoi(words[1])), redisFree};
  if (!connection || connection->err != 0) return 1;
  run(connection.get(), {"SET {a}n 1", "FENCE a 34 ada", "SET {a}n 1", "INCRBY {a}n 9007199254740993",
                         "LPOP {a}none 2", "RPUSH {a}l x y", "GET {a}n", "INCR {a}l"});
  run(connection.get(), {"MULTI", "SET {a}n 2", "GET {a}n", "EXEC"});
  run(connection.get(), {"FENCED b 7 bob SET {b}n 1", "SET {b}n 2"});
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  run(connection.get(), {"SET {a}n 3", "GET {a}n", "MULTI", "SET {a}n 3", "EXEC"});
}
