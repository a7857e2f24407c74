// SPDX-License-Identifier: Apache-2.0
// Run by the build: compiles a source of kernels by NVRTC, which comes with LibTorch, so that a
// training compiles nothing when it starts.
//   compile_kernels SOURCE.cu ROOT OUT
// writes OUT.cc, which adds the kernels to KernelModules(), and the images that it embeds: machine
// code for the GPUs of data centres, and PTX, which the driver compiles, for all others.
#include <nvrtc.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Target {
  int capability;
  bool is_ptx;
};

// A100, H100 and H200, B200; the last is for all others, and later ones.
constexpr Target kTargets[] = {{80, false}, {90, false}, {100, false}, {80, true}};

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) throw std::runtime_error(path.string() + " cannot be read");
  return text;
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error(path.string() + " cannot be written");
}

void Check(nvrtcResult result, const std::string& what) {
  if (result != NVRTC_SUCCESS)
    throw std::runtime_error(what + " failed: " + nvrtcGetErrorString(result));
}

bool IsSupported(int capability) {
  int count = 0;
  Check(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> all(static_cast<std::size_t>(count));
  Check(nvrtcGetSupportedArchs(all.data()), "nvrtcGetSupportedArchs");
  for (const int one : all) {
    if (one == capability) return true;
  }
  return false;
}

std::string Compile(const std::filesystem::path& source, const std::string& root,
                    const Target& target) {
  nvrtcProgram program = nullptr;
  Check(nvrtcCreateProgram(&program, ReadFile(source).c_str(), source.c_str(), 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  const std::string architecture = std::string("--gpu-architecture=") +
                                   (target.is_ptx ? "compute_" : "sm_") +
                                   std::to_string(target.capability);
  const std::string include = "-I" + root;
  const std::vector<const char*> options{architecture.c_str(), include.c_str(), "--std=c++20"};
  const nvrtcResult result =
      nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  std::size_t size = 0;
  Check(nvrtcGetProgramLogSize(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  Check(nvrtcGetProgramLog(program, log.data()), "nvrtcGetProgramLog");
  if (size > 1) std::fprintf(stderr, "%s\n", log.c_str());
  Check(result, source.string() + " for " + architecture);
  Check((target.is_ptx ? nvrtcGetPTXSize : nvrtcGetCUBINSize)(program, &size), "size of the image");
  std::string image(size, '\0');
  Check((target.is_ptx ? nvrtcGetPTX : nvrtcGetCUBIN)(program, image.data()), "the image");
  Check(nvrtcDestroyProgram(&program), "nvrtcDestroyProgram");
  return image;
}

// Names of the kernels of a PTX, as C++ strings.
std::string KernelList(const std::string& ptx) {
  static const std::regex entry(R"(\.visible \.entry (\w+))");
  std::string list;
  for (std::sregex_iterator found(ptx.begin(), ptx.end(), entry), end; found != end; ++found)
    list += "\"" + (*found)[1].str() + "\", ";
  return list;
}

void Run(const std::filesystem::path& source, const std::string& root, const std::string& out) {
  std::string labels;
  std::string declarations;
  std::string images;
  std::string kernels;
  for (const Target& target : kTargets) {
    if (!IsSupported(target.capability)) continue;  // of an older NVRTC
    const std::string image = Compile(source, root, target);
    const std::string kind = (target.is_ptx ? "ptx_" : "sm_") + std::to_string(target.capability);
    const std::string file = out + "." + kind;
    const std::string name = "ddprun_" + source.stem().string() + "_" + kind;
    WriteFile(file, image);
    if (target.is_ptx) kernels = KernelList(image);
    // The number is for ccache, which looks at this text alone.
    labels += "# " + std::to_string(std::hash<std::string>()(image)) + "\n.balign 64\n.hidden " +
              name + "\n.globl " + name + "\n" + name + ": .incbin \"" + file + "\"\n.byte 0\n";
    declarations += "extern \"C\" const char " + name + "[];\n";
    // A PTX ends with a zero of its own.
    images += "{" + std::to_string(target.capability) + ", " + (target.is_ptx ? "true" : "false") +
              ", {" + name + ", " + std::to_string(image.size() - (target.is_ptx ? 1 : 0)) +
              "}},\n";
  }
  WriteFile(
      out + ".cc",
      "// Written by compile_kernels.\n#include \"worker/library/accelerator/kernel_images.h\"\n"
      "asm(R\"(.pushsection .rodata\n" +
          labels + ".popsection)\");\n" + declarations +
          "static const bool added = (ddprun::KernelModules().push_back({\"" +
          source.filename().string() + "\", {" + kernels + "}, {" + images + "}}), true);\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: compile_kernels SOURCE.cu ROOT OUT");
    Run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compile_kernels: %s\n", error.what());
    return 1;
  }
}
