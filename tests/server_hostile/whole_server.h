// Everything from the socket to the engine, in this process: ApiRig's endpoints and null device
// behind a real listener.
#pragma once

#include <memory>

namespace spry {

class WholeServer {
 public:
  WholeServer();
  ~WholeServer();

  int port() const;
  // True once nobody is connected and the engine holds nothing, within twenty seconds.
  bool AwaitQuiet() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace spry
