// How far NICs are from GPUs and cores, on a machine made of folders.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "shmem/nic/distance.hpp"

using namespace railshmem::nic;
namespace fs = std::filesystem;

namespace {

// Two sockets with 4 cores each. On the first a switch with nic 02 and gpu 03 and, on another port
// of the root, nic 05; on the second nic 81 and gpu 82.
struct Machine {
  Machine() {
    std::string pattern = (fs::temp_directory_path() / "railshmem-sysfs-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
    add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", 0);
    add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0", 0);
    add("pci0000:00/0000:00:02.0/0000:05:00.0", 0);
    add("pci0000:40/0000:40:01.0/0000:41:00.0", 0);
    add("pci0000:80/0000:80:01.0/0000:81:00.0", 1);
    add("pci0000:80/0000:80:02.0/0000:82:00.0", 1);
    node(0, "0-2,6", "10 21");
    node(1, "3-5,7", "21 10");
  }
  ~Machine() { fs::remove_all(root); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void add(const std::string& path, int numa) {
    const fs::path device = root / "devices" / path;
    write(device / "numa_node", std::to_string(numa));
    fs::create_directories(root / "bus/pci/devices");
    fs::create_symlink(device, root / "bus/pci/devices" / device.filename());
  }
  void node(int number, const std::string& cores, const std::string& distances) {
    const fs::path folder = root / "devices/system/node" / ("node" + std::to_string(number));
    write(folder / "cpulist", cores);
    write(folder / "distance", distances);
  }
  std::string device(const std::string& bus_id) const {
    return (root / "bus/pci/devices" / bus_id).string();
  }
  uint32_t to_gpu(const std::string& nic, const std::string& gpu) const {
    return distance_to_gpu(device(nic), gpu, root.string());
  }
  uint32_t to_cores(const std::string& nic, const std::vector<int>& cores) const {
    return distance_to_cores(device(nic), cores, root.string());
  }

  fs::path root;
};

}  // namespace

TEST_CASE("distance: bridges, then sockets, part a NIC from a GPU") {
  const Machine machine;
  const std::string gpu = "0000:03:00.0";
  const uint32_t same_switch = machine.to_gpu("0000:02:00.0", gpu);
  const uint32_t same_root = machine.to_gpu("0000:05:00.0", gpu);
  const uint32_t same_socket = machine.to_gpu("0000:41:00.0", gpu);
  const uint32_t other_socket = machine.to_gpu("0000:81:00.0", gpu);
  CHECK(same_switch < same_root);
  CHECK(same_root < same_socket);
  CHECK(same_socket < other_socket);
  CHECK(other_socket < kUnknownDistance);
}

TEST_CASE("distance: a GPU's name may have capital letters") {
  Machine machine;
  machine.add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:0a:00.0", 0);
  CHECK(machine.to_gpu("0000:02:00.0", "0000:0A:00.0") ==
        machine.to_gpu("0000:02:00.0", "0000:03:00.0"));
}

TEST_CASE("distance: cores are near on the NIC's own NUMA node") {
  const Machine machine;
  CHECK(machine.to_cores("0000:02:00.0", {0, 1}) == 0);
  CHECK(machine.to_cores("0000:02:00.0", {5, 6}) == 0);
  CHECK(machine.to_cores("0000:02:00.0", {3, 7}) == 21);
  CHECK(machine.to_cores("0000:81:00.0", {4}) == 0);
  CHECK(machine.to_cores("0000:81:00.0", {2}) == 21);
}

TEST_CASE("distance: what is nowhere is far from everything") {
  const Machine machine;
  CHECK(machine.to_gpu("0000:99:00.0", "0000:03:00.0") == kUnknownDistance);
  CHECK(machine.to_gpu("0000:02:00.0", "0000:99:00.0") == kUnknownDistance);
  CHECK(machine.to_cores("0000:99:00.0", {0}) == kUnknownDistance);
  CHECK(machine.to_cores("0000:02:00.0", {}) == kUnknownDistance);
}

TEST_CASE("distance: this thread has cores") {
  CHECK_FALSE(own_cores().empty());
}
