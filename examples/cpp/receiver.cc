#include <iostream>

#include <stagewire/node/node.h>
using namespace stagewire;

int main() {  // receiver: reads the ticket, gets the tensor where it lies
  std::string line;
  std::getline(std::cin, line);
  auto node = Node::create({}).value();
  GetOptions options(Deadline::in(std::chrono::seconds(30)));
  options.placement = Placement::view;
  Result<Got> got = node->get(Source::of(Ticket::parse(line).value()), options);
  if (!got.ok()) return std::cerr << got.error() << '\n', 1;
  const Tensor& k0 = *got->payload.find("k0");
  std::cout << k0.bytes() << " bytes over " << got->transport
            << (got->view ? ", no copy, first " : ", first ") << static_cast<const float*>(k0.data)[0]
            << '\n';
}
