#include <future>
#include <iostream>

#include <stagewire/node/node.h>
using namespace stagewire;

int main() {  // sender: publishes a tensor, prints its ticket, waits until it was read
  std::vector<float> kv(1 << 20, 1.5F);
  std::promise<EndReason> ended;
  auto node = Node::create({}).value();
  PutOptions options;
  options.released = [&](EndReason reason) { ended.set_value(reason); };
  Tensor k0 = Tensor::over(DType::f32, {1024, 1024}, kv.data()).value();
  Ticket ticket = node->put({"", "ar", "dit", "req-1"}, Payload::of({{"k0", k0}}), options).value();
  std::cout << ticket.to_text() << std::endl;
  std::cerr << "ended: " << to_string(ended.get_future().get()) << '\n';
}
