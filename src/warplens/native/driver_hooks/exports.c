/* The driver's table of exported symbols, where whoever looks a function up from now on finds ours; and the pointers
   that libraries looked up before. */
#define _GNU_SOURCE
#include "hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct link_map *map_of(void *library) {
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) ? NULL : map;
}

/* An address of the dynamic section: glibc has added the base already, others have not. */
static const void *at(const struct link_map *map, ElfW(Addr) value) {
    return (const void *)(value < map->l_addr ? value + map->l_addr : value);
}

static ElfW(Sym) *symbol_of(const struct link_map *map, const char *name) {
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *gnu = NULL, *sysv = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = at(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) strings = at(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_GNU_HASH) gnu = at(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_HASH) sysv = at(map, entry->d_un.d_ptr);
    }
    if (!symbols || !strings) return NULL;
    if (gnu) {
        uint32_t hash = 5381, count = gnu[0], offset = gnu[1], bloom = gnu[2];
        for (const unsigned char *c = (const unsigned char *)name; *c; c++) hash = hash * 33 + *c;
        const uint32_t *buckets = gnu + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = buckets + count;
        uint32_t index = count ? buckets[hash % count] : 0;
        if (index < offset) return NULL;
        for (;; index++) {
            uint32_t known = chain[index - offset];
            if ((known | 1) == (hash | 1) && !strcmp(strings + symbols[index].st_name, name))
                return (ElfW(Sym) *)&symbols[index];
            if (known & 1) return NULL;
        }
    }
    for (uint32_t i = 0; sysv && i < sysv[1]; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(strings + symbols[i].st_name, name))
            return (ElfW(Sym) *)&symbols[i];
    return NULL;
}

void *wl_find_export(void *library, const char *name) {
    const struct link_map *map = map_of(library);
    const ElfW(Sym) *symbol = map ? symbol_of(map, name) : NULL;
    return symbol && symbol->st_shndx != SHN_UNDEF && symbol->st_value ? (char *)map->l_addr + symbol->st_value : NULL;
}

static int protect(void *address, size_t size, int protection) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)address & ~(page - 1);
    return mprotect((void *)start, (uintptr_t)address + size - start, protection) == 0;
}

typedef struct segment {
    uintptr_t address;
    int protection;
} segment;

static int find_segment(struct dl_phdr_info *info, size_t size, void *data) {
    segment *wanted = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || wanted->address < start || wanted->address >= start + part->p_memsz) continue;
        wanted->protection = PROT_READ | (part->p_flags & PF_X ? PROT_EXEC : 0);
        return 1;
    }
    return 0;
}

/* The protection of the read-only part of a library: older linkers put tables and code into one segment. */
static int protection_of(const void *address) {
    segment wanted = {(uintptr_t)address, PROT_READ};
    dl_iterate_phdr(find_segment, &wanted);
    return wanted.protection;
}

void wl_set_export(void *library, const char *name, void *address) {
    const struct link_map *map = map_of(library);
    ElfW(Sym) *symbol = map ? symbol_of(map, name) : NULL;
    if (!symbol) return;
    int before = protection_of(symbol);
    if (!protect(&symbol->st_value, sizeof symbol->st_value, before | PROT_WRITE)) return;
    __atomic_store_n(&symbol->st_value, (ElfW(Addr))address - map->l_addr, __ATOMIC_RELEASE);
    protect(&symbol->st_value, sizeof symbol->st_value, before);
}

typedef struct search {
    const void *skip_first, *skip_second; /* addresses in the libraries that keep their pointers */
    void *const *from, *const *to;
    size_t count;
    uintptr_t least, most;
} search;

static int holds(const struct dl_phdr_info *info, const void *address) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (uintptr_t)address >= start && (uintptr_t)address < start + part->p_memsz)
            return 1;
    }
    return 0;
}

static void replace_in(uintptr_t start, uintptr_t end, const search *what, uintptr_t fixed, uintptr_t fixed_end) {
    for (uintptr_t place = (start + 7) & ~(uintptr_t)7; place + 8 <= end; place += 8) {
        uintptr_t value = *(const uintptr_t *)place;
        if (value < what->least || value > what->most) continue;
        for (size_t i = 0; i < what->count; i++) {
            if (!what->from[i] || value != (uintptr_t)what->from[i]) continue;
            int locked = place >= fixed && place < fixed_end;
            if (locked && !protect((void *)place, 8, PROT_READ | PROT_WRITE)) break;
            __atomic_store_n((uintptr_t *)place, (uintptr_t)what->to[i], __ATOMIC_RELEASE);
            if (locked) protect((void *)place, 8, PROT_READ);
            break;
        }
    }
}

static int replace_in_library(struct dl_phdr_info *info, size_t size, void *data) {
    const search *what = data;
    (void)size;
    if (holds(info, what->skip_first) || holds(info, what->skip_second)) return 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), fixed = 0, fixed_end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            fixed = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            fixed_end = (fixed + info->dlpi_phdr[i].p_memsz) & ~(page - 1);
            fixed &= ~(page - 1);
        }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) && (part->p_flags & PF_R))
            replace_in(start, start + part->p_memsz, what, fixed, fixed_end);
    }
    return 0;
}

/* Replace each pointer `from[i]` in the data of every library by `to[i]`. The driver keeps its own. */
void wl_replace_pointers(void *library, void *const *from, void *const *to, size_t count) {
    search what = {NULL, (const void *)wl_replace_pointers, from, to, count, UINTPTR_MAX, 0};
    (void)library;
    for (size_t i = 0; i < count; i++)
        if (from[i]) {
            what.skip_first = from[i];
            if ((uintptr_t)from[i] < what.least) what.least = (uintptr_t)from[i];
            if ((uintptr_t)from[i] > what.most) what.most = (uintptr_t)from[i];
        }
    if (what.skip_first) dl_iterate_phdr(replace_in_library, &what);
}

static char *left_alone; /* parts of file names, each ended by a newline */
static _Atomic uint64_t verdicts[4096];

/* Calls from libraries whose file names contain one of these go to the driver as they are. */
void wl_hooks_leave_alone(const char *parts) {
    char *before = left_alone;
    left_alone = strdup(parts);
    memset((void *)verdicts, 0, sizeof verdicts);
    (void)before; /* another thread may still read it */
}

int wl_is_left_alone(void *caller) {
    uint64_t key = (uint64_t)(uintptr_t)caller << 1;
    _Atomic uint64_t *place = &verdicts[(key >> 2) % 4096];
    uint64_t known = atomic_load_explicit(place, memory_order_relaxed);
    if (known >> 1 == key >> 1) return known & 1;
    Dl_info info;
    int found = 0;
    if (left_alone && dladdr(caller, &info) && info.dli_fname)
        for (const char *part = left_alone, *end; !found && (end = strchr(part, '\n')); part = end + 1)
            found = end > part && memmem(info.dli_fname, strlen(info.dli_fname), part, (size_t)(end - part)) != NULL;
    atomic_store_explicit(place, key | (uint64_t)found, memory_order_relaxed);
    return found;
}
