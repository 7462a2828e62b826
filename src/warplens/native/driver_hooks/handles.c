/* What each handle of the driver was made of: images by module or library, names by function or kernel. */
#include "hooks.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define FAT_WRAPPER 0x466243b1u
#define FAT_BINARY 0xba55ed50u

typedef struct node {
    uint64_t handle;
    wl_origin origin;
    int owned; /* the image is a copy */
    struct node *next;
} node;

static node *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static node **place(uint64_t handle) {
    return &buckets[(handle >> 3) * 0x9e3779b97f4a7c15ull >> 52];
}

static const node *find(uint64_t handle) {
    const node *at = *place(handle);
    while (at && at->handle != handle) at = at->next;
    return at;
}

/* A new node in the place of what the handle meant before: the driver gives handles out again. */
static node *fresh(uint64_t handle) {
    node **at = place(handle);
    while (*at && (*at)->handle != handle) at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof(node));
        if (!*at) return NULL;
    } else {
        if ((*at)->owned) free((void *)(*at)->origin.image);
        free((void *)(*at)->origin.name);
        memset(&(*at)->origin, 0, sizeof(wl_origin));
        (*at)->owned = 0;
    }
    (*at)->handle = handle;
    return *at;
}

static uint64_t elf_size(const unsigned char *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    if (image[EI_CLASS] != ELFCLASS64) return 0;
    uint64_t end = sizeof *header, last;
    last = header->e_shoff + (uint64_t)header->e_shnum * header->e_shentsize;
    if (last > end) end = last;
    last = header->e_phoff + (uint64_t)header->e_phnum * header->e_phentsize;
    if (last > end) end = last;
    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *section = (const Elf64_Shdr *)(image + header->e_shoff + (uint64_t)i * header->e_shentsize);
        last = section->sh_offset + (section->sh_type == SHT_NOBITS ? 0 : section->sh_size);
        if (last > end) end = last;
    }
    return end;
}

static uint64_t fat_size(const unsigned char *image) {
    uint16_t header;
    uint64_t size;
    memcpy(&header, image + 6, sizeof header);
    memcpy(&size, image + 8, sizeof size);
    return header + size;
}

static void keep(uint64_t handle, int kind, const void *image, uint64_t size, int owned) {
    pthread_mutex_lock(&lock);
    node *made = fresh(handle);
    if (made) {
        made->origin.kind = (uint32_t)kind, made->origin.image = image, made->origin.size = size;
        made->owned = owned;
    }
    pthread_mutex_unlock(&lock);
}

void wl_keep_image(uint64_t handle, int kind, const void *given) {
    const unsigned char *image = given;
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    if (magic == FAT_WRAPPER) {
        /* Compiled into a program, so it stays: copying those of a large library would take gigabytes. */
        memcpy(&image, image + 8, sizeof image);
        memcpy(&magic, image, sizeof magic);
        keep(handle, kind, image, magic == FAT_BINARY ? fat_size(image) : 0, 0);
        return;
    }
    uint64_t size = 0;
    if (magic == FAT_BINARY) size = fat_size(image);
    else if (!memcmp(image, ELFMAG, SELFMAG)) size = elf_size(image);
    else size = strlen(given) + 1;
    void *copy = malloc(size ? size : 1);
    if (copy) memcpy(copy, image, size);
    keep(handle, kind, copy, copy ? size : 0, 1);
}

void wl_keep_file(uint64_t handle, int kind, const char *path) {
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    uint64_t size = 0;
    if (file) {
        if (!fseek(file, 0, SEEK_END)) {
            long length = ftell(file);
            data = length > 0 ? malloc((size_t)length) : NULL;
            rewind(file);
            if (data) size = fread(data, 1, (size_t)length, file);
        }
        fclose(file);
    }
    keep(handle, kind, data, size, 1);
}

/* What was found in `parent`, under a name or under that of `parent` itself. Its parent is what was loaded. */
void wl_keep_child(uint64_t handle, int kind, uint64_t parent, const char *name) {
    pthread_mutex_lock(&lock);
    const node *from = find(parent);
    uint64_t root = from && from->origin.parent ? from->origin.parent : parent;
    char *copy = name ? strdup(name) : from && from->origin.name ? strdup(from->origin.name) : NULL;
    node *made = fresh(handle);
    if (made) made->origin.kind = (uint32_t)kind, made->origin.parent = root, made->origin.name = copy;
    else free(copy);
    pthread_mutex_unlock(&lock);
}

void wl_forget_image(uint64_t handle) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUCKETS; i++) {
        for (node **at = &buckets[i]; *at;) {
            node *one = *at;
            if (one->handle != handle && one->origin.parent != handle) {
                at = &one->next;
                continue;
            }
            *at = one->next;
            if (one->origin.kind >= WL_FUNCTION) wl_reopen_function(one->handle);
            if (one->owned) free((void *)one->origin.image);
            free((void *)one->origin.name);
            free(one);
        }
    }
    pthread_mutex_unlock(&lock);
}

int wl_hooks_find(uint64_t handle, wl_origin *out) {
    pthread_mutex_lock(&lock);
    const node *found = find(handle);
    if (found) *out = found->origin;
    pthread_mutex_unlock(&lock);
    return found != NULL;
}
