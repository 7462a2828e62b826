/* Python inside a compiled program: preloaded into it by `warplens run`, so that its launches can be recorded.

   What the program itself sees of its environment is as it was: the variables that brought Python here are gone before
   main begins. Whatever fails here, the program runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*run)(const char *);
static int (*ensure)(void);
static void (*release)(int);
static int finished;

/* End the profile, while CUDA and all libraries are still there: before exit() runs what they registered. */
void wl_host_finish(void) {
    if (finished || !run) return;
    finished = 1;
    int state = ensure();
    run("import warplens.commands.shared.embedded_run as _wl\n_wl.finish()\n");
    release(state);
}

static int (*program)(int, char **, char **);

static int main_and_finish(int count, char **arguments, char **environment) {
    int status = program(count, arguments, environment);
    wl_host_finish();
    return status;
}

int __libc_start_main(int (*main)(int, char **, char **), int count, char **arguments, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
        (__typeof__(start))dlsym(RTLD_NEXT, "__libc_start_main");
    program = main;
    return start(main_and_finish, count, arguments, init, fini, rtld_fini, stack_end);
}

void exit(int status) {
    static void (*leave)(int) __attribute__((noreturn));
    if (!leave) leave = (__typeof__(leave))dlsym(RTLD_NEXT, "exit");
    wl_host_finish();
    leave(status);
}

static int is_program(void) {
    const char *wanted = getenv("WARPLENS_HOST_PROGRAM");
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (!wanted || length < 0) return 0;
    path[length] = 0;
    return !strcmp(path, wanted);
}

/* Give a variable the value that it had before, which lies under another name; none means that it was not set. */
static void restore(const char *name, const char *kept) {
    const char *before = getenv(kept);
    if (before) setenv(name, before, 1);
    else unsetenv(name);
    unsetenv(kept);
}

__attribute__((constructor)) static void begin(void) {
    const char *library = getenv("WARPLENS_HOST_PYTHON");
    if (!library || !is_program()) return; /* a program that this one starts */
    void *python = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!python) {
        fprintf(stderr, "warplens: the program runs unmarked: %s\n", dlerror());
        return;
    }
    void (*initialize)(int) = (void (*)(int))dlsym(python, "Py_InitializeEx");
    void *(*save)(void) = (void *(*)(void))dlsym(python, "PyEval_SaveThread");
    run = (int (*)(const char *))dlsym(python, "PyRun_SimpleString");
    ensure = (int (*)(void))dlsym(python, "PyGILState_Ensure");
    release = (void (*)(int))dlsym(python, "PyGILState_Release");
    initialize(0);
    restore("LD_PRELOAD", "WARPLENS_HOST_PRELOAD");
    restore("PYTHONHOME", "WARPLENS_HOST_PYTHONHOME");
    restore("PYTHONPATH", "WARPLENS_HOST_PYTHONPATH");
    unsetenv("WARPLENS_HOST_PYTHON");
    unsetenv("WARPLENS_HOST_PROGRAM");
    if (run("import warplens.commands.shared.embedded_run as _wl\n_wl.begin()\n")) run = NULL;
    save();
}
