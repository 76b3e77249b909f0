// A program that knows nothing of fences, by libpqxx: pqxx_client CONNECTION STATEMENT. It executes the
// statement in a transaction, waits for a line, and does so again on the same connection: 'done', or the
// SQLSTATE.

#include <cstdio>
#include <iostream>
#include <pqxx/pqxx>
#include <string>

namespace {

std::string write(pqxx::connection& connection, const char* statement) {
  try {
    pqxx::work work{connection};
    work.exec(statement);
    work.commit();
    return "done";
  } catch (const pqxx::sql_error& error) {
    return error.sqlstate();
  }
}

}  // namespace

int main(int, char** words) {
  pqxx::connection connection{words[1]};
  for (int round = 0; round < 2; ++round) {
    std::cout << write(connection, words[2]) << std::endl;
    std::string line;
    if (round == 0) std::getline(std::cin, line);
  }
}
