"""The part of GraphQL's schema that the simulated RunPod has: what its SDK, its console and spot pods need."""

from __future__ import annotations

SDL = """
type Query {
  myself: User
  pod(input: PodFilter): Pod
  gpuTypes(input: GpuTypeFilter): [GpuType]
}
type Mutation {
  podRentInterruptable(input: PodRentInterruptableInput!): Pod
  podStop(input: PodStopInput!): Pod
  podBidResume(input: PodBidResumeInput!): Pod
}

input PodFilter { podId: String }
input GpuTypeFilter { id: String, ids: [String] }
input LowestPriceInput { gpuCount: Int, secureCloud: Boolean, dataCenterId: String }
input PodStopInput { podId: String! }
input PodBidResumeInput { podId: String!, gpuCount: Int!, bidPerGpu: Float! }
input EnvInput { key: String!, value: String! }
enum CloudType { ALL SECURE COMMUNITY }
input PodRentInterruptableInput {
  name: String, imageName: String, cloudType: CloudType, gpuTypeId: String, gpuTypeIdList: [String], gpuCount: Int,
  volumeInGb: Int, containerDiskInGb: Int, volumeMountPath: String, minVcpuCount: Int, minMemoryInGb: Int,
  ports: String, env: [EnvInput], dockerArgs: String, dataCenterId: String, countryCode: String,
  networkVolumeId: String, templateId: String, startSsh: Boolean, supportPublicIp: Boolean,
  allowedCudaVersions: [String], minCudaVersion: String, deployCost: Float, stopAfter: String, terminateAfter: String,
  volumeKey: String, minDownload: Int, minUpload: Int, bidPerGpu: Float
}
type User {
  id: ID!
  email: String
  pubKey: String
  pods: [Pod]
  networkVolumes: [NetworkVolume]
  clientBalance: Float
  currentSpendPerHr: Float
  spendLimit: Float
  underBalance: Boolean
}
type NetworkVolume { id: String, name: String, size: Int, dataCenterId: String }
type Pod {
  id: ID!, containerDiskInGb: Int, costPerHr: Float, desiredStatus: String, dockerArgs: String, dockerId: String,
  env: [String], gpuCount: Int, imageName: String, lastStatusChange: String, machineId: String, memoryInGb: Float,
  name: String, podType: String, port: Int, ports: String, uptimeSeconds: Int, vcpuCount: Float, volumeInGb: Float,
  volumeMountPath: String, runtime: Runtime, machine: PodMachine
}
type Runtime { uptimeInSeconds: Int, ports: [PodPort], gpus: [PodGpu] }
type PodPort { ip: String, isIpPublic: Boolean, privatePort: Int, publicPort: Int, type: String }
type PodGpu { id: String, gpuUtilPercent: Float, memoryUtilPercent: Float }
type PodMachine { gpuDisplayName: String, podHostId: String }
type GpuType {
  id: String, displayName: String, manufacturer: String, memoryInGb: Int, cudaCores: Int, secureCloud: Boolean,
  communityCloud: Boolean, securePrice: Float, communityPrice: Float, oneMonthPrice: Float, threeMonthPrice: Float,
  oneWeekPrice: Float, communitySpotPrice: Float, secureSpotPrice: Float, maxGpuCount: Int,
  lowestPrice(input: LowestPriceInput): LowestPrice
}
type LowestPrice {
  minimumBidPrice: Float, uninterruptablePrice: Float, stockStatus: String, availableGpuCounts: [Int]
}
"""
