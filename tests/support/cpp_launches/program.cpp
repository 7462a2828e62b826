// A compiled program that knows nothing of Python: it loads PTX from a file and launches a kernel from it.
// Arguments: the file, the number of launches, the exit code, and `reset` the device before the end or `exit`.
#include "launcher.cpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

int main(int count, char **arguments) {
    std::ifstream file(arguments[1]);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (load(text.c_str(), "vector_add", 0)) return 99;
    H library = dlopen("libcuda.so.1", RTLD_NOW);
    auto place = reinterpret_cast<uint64_t (*)(int)>(dlsym(library, "fake_place"));
    auto check = reinterpret_cast<int (*)()>(dlsym(library, "fake_check"));
    for (int i = 0; i < atoi(arguments[2]); i++) {
        if (launch("plain", 4, 32, 7, place(0), place(1), place(2), 100)) return 98;
        printf("result %d\n", check());
    }
    for (const char *name : {"LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "WARPLENS_HOST_REQUEST"})
        printf("%s=%s\n", name, getenv(name) ? getenv(name) : "");
    fflush(stdout);
    system("echo child $LD_PRELOAD");
    if (count > 4 && !strcmp(arguments[4], "reset")) call("cuDevicePrimaryCtxReset", 1, 0);
    if (count > 4 && !strcmp(arguments[4], "exit")) exit(atoi(arguments[3]));
    return atoi(arguments[3]);
}
