// Replays the schedule of transfers and compute that benchmarks/simgrid_flows.py writes, in SimGrid: one actor per stream of a rank, one per
// channel of a rank. Each line of the file: "link NAME BYTES_S LATENCY_S", "route SRC DST LINK...", "rank R", then its events:
// "compute SECONDS", "post NUMBER CHANNEL SENDS (PEER BYTES)... RECEIVES (PEER BYTES)...", "wait NUMBER"; those of the second stream, which
// relays use, have "beside" before them.
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <vector>
namespace sg = simgrid::s4u;
struct Post {
  int number, channel;
  std::vector<std::pair<int, double>> sends, receives;
  sg::SemaphorePtr ready = sg::Semaphore::create(0), done = sg::Semaphore::create(0);
};
struct Event {
  char kind;
  double seconds;
  std::shared_ptr<Post> post;
};
static std::vector<std::vector<Event>> programs[2]; // of the first and the second stream of each rank
static std::string box(int channel, int from, int to)
{
  return std::to_string(channel) + ":" + std::to_string(from) + ":" + std::to_string(to);
}
static void run_channel(int rank, std::vector<std::shared_ptr<Post>> posts)
{
  static char token;
  for (auto const& post : posts) {
    post->ready->acquire();
    std::vector<sg::CommPtr> open;
    std::vector<char*> received(post->receives.size());
    for (auto const& [peer, bytes] : post->sends)
      open.push_back(sg::Mailbox::by_name(box(post->channel, rank, peer))->put_async(&token, bytes));
    for (size_t i = 0; i < post->receives.size(); ++i)
      open.push_back(sg::Mailbox::by_name(box(post->channel, post->receives[i].first, rank))->get_async<char>(&received[i]));
    for (auto const& comm : open)
      comm->wait();
    post->done->release();
  }
}
static void run_stream(int rank, int stream)
{
  for (auto const& event : programs[stream][rank]) {
    if (event.kind == 'c')
      sg::this_actor::sleep_for(event.seconds);
    else if (event.kind == 'p')
      event.post->ready->release();
    else
      event.post->done->acquire();
  }
  std::cout << rank << " " << sg::Engine::get_clock() << "\n";
}
int main(int argc, char** argv)
{
  sg::Engine engine(&argc, argv);
  std::ifstream file(argv[1]);
  auto* zone = sg::create_full_zone("cluster");
  std::map<std::string, sg::Link*> links;
  std::vector<sg::Host*> hosts;
  std::vector<std::map<int, std::vector<std::shared_ptr<Post>>>> channels;
  std::vector<std::map<int, std::shared_ptr<Post>>> posts;
  std::string line, word;
  std::vector<std::tuple<int, int, std::vector<std::string>>> routes;
  int rank = -1;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    in >> word;
    const int stream = word == "beside";
    if (stream)
      in >> word;
    if (word == "link") {
      std::string name;
      double speed, latency;
      in >> name >> speed >> latency;
      links[name] = zone->create_link(name, speed)->set_latency(latency)->seal();
    } else if (word == "route") {
      int from, to;
      in >> from >> to;
      std::vector<std::string> names;
      while (in >> word)
        names.push_back(word);
      routes.emplace_back(from, to, names);
    } else if (word == "rank") {
      in >> rank;
      hosts.push_back(zone->create_host("h" + std::to_string(rank), 1e9)->seal());
      for (auto& streams : programs)
        streams.emplace_back();
      channels.emplace_back();
      posts.emplace_back();
    } else if (word == "compute") {
      double seconds;
      in >> seconds;
      programs[stream][rank].push_back({'c', seconds, nullptr});
    } else if (word == "post") {
      auto post = std::make_shared<Post>();
      size_t count;
      in >> post->number >> post->channel >> count;
      for (auto* side : {&post->sends, &post->receives}) {
        for (size_t i = 0; i < count; ++i) {
          int peer;
          double bytes;
          in >> peer >> bytes;
          side->emplace_back(peer, bytes);
        }
        in >> count;
      }
      channels[rank][post->channel].push_back(post);
      posts[rank][post->number] = post;
      programs[stream][rank].push_back({'p', 0, post});
    } else if (word == "wait") {
      int number;
      in >> number;
      programs[stream][rank].push_back({'w', 0, posts[rank][number]});
    }
  }
  for (auto const& [from, to, names] : routes) {
    std::vector<sg::LinkInRoute> path;
    for (auto const& name : names)
      path.emplace_back(links[name]);
    zone->add_route(hosts[from]->get_netpoint(), hosts[to]->get_netpoint(), nullptr, nullptr, path, false);
  }
  zone->seal();
  for (size_t r = 0; r < hosts.size(); ++r) {
    for (int stream : {0, 1})
      sg::Actor::create("stream", hosts[r], run_stream, r, stream);
    for (auto const& [channel, own] : channels[r])
      sg::Actor::create("channel", hosts[r], run_channel, r, own);
  }
  engine.run();
  return 0;
}
