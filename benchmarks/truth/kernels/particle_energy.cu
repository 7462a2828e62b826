// Kinetic energy of particles: records of 16 floats, of which four are read, or one array per field (REPAIRED=1).
#include <warplens.cuh>

struct Particle {
  float position[3], velocity[3], mass, charge, force[3], spin[3], age, kind;
};

extern "C" __global__ void __launch_bounds__(256)
    particle_energy(const float* fields, float* energy, int count, wl::Buffer prof) {
  wl::Kernel k(prof);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float vx, vy, vz, mass;
    {
      WL_REGION("pick");
#if REPAIRED
      vx = fields[i], vy = fields[count + i], vz = fields[2 * count + i], mass = fields[3 * count + i];
#else
      const Particle* const one = reinterpret_cast<const Particle*>(fields) + i;
      vx = one->velocity[0], vy = one->velocity[1], vz = one->velocity[2], mass = one->mass;
#endif
    }
    WL_REGION("put");
    energy[i] = 0.5f * mass * (vx * vx + vy * vy + vz * vz);
  }
}
