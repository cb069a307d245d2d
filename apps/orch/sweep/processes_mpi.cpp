#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "processes.hpp"

namespace orch::sweep {

struct Processes::Sending {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
};

Processes::Processes() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Processes::~Processes() {
  for (drop_sent(); !sending_.empty(); drop_sent()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  MPI_Finalize();
}

void Processes::drop_sent() {
  sending_.remove_if([](const std::unique_ptr<Sending>& one) {
    int sent = 0;
    MPI_Test(&one->request, &sent, MPI_STATUS_IGNORE);
    return sent != 0;
  });
}

void Processes::send(int to, std::string text) {
  drop_sent();
  auto& one = sending_.emplace_back(std::make_unique<Sending>());
  one->text = std::move(text);
  MPI_Isend(one->text.data(), static_cast<int>(one->text.size()), MPI_CHAR, to, 0, MPI_COMM_WORLD, &one->request);
}

std::optional<Processes::Message> Processes::receive() {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return {};
  int bytes = 0;
  MPI_Get_count(&status, MPI_CHAR, &bytes);
  Message message{status.MPI_SOURCE, std::string(static_cast<std::size_t>(bytes), '\0')};
  MPI_Recv(message.text.data(), bytes, MPI_CHAR, message.from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return message;
}

void Processes::end_all(int exit_code) {
  std::cout << std::flush;
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace orch::sweep
