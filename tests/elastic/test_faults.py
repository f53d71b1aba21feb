"""Texts that people have reported, by the kind of fault that they were found to be; addresses and paths are shortened."""

import pytest
import torch.distributed as dist

from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.launch.exit_policy import Failure
from ebb.elastic.runtime.process_group import PeerLostError, is_loss, noticing_loss

# DistBackendError's texts begin so
NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
VERSION = ", NCCL version 2.21.5\n"
INFO = " (run with NCCL_DEBUG=INFO for details)" + VERSION
CUDA = NCCL + "unhandled cuda error" + INFO + "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
SYSTEM = (
    NCCL + "unhandled system error" + INFO + "ncclSystemError: System call (e.g. socket, malloc) or external library call failed "
    "or device error.\nLast error:\n"
)
ASYNC = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
)

PEER = [
    # NVIDIA/nccl#2076, #1928, tatsu-lab/stanford_alpaca#207
    NCCL + "remote process exited or there was a network error" + VERSION + "ncclRemoteError: A call failed possibly due to a "
    "network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv from 172.16.0.4<33759> "
    "failed : Connection reset by peer",
    "NCCL error: remote process exited or there was a network error, NCCL version 2.14.3 ncclRemoteError: A call failed possibly "
    "due to a network error or a remote process exiting prematurely. Last error: NET/IB : Got completion from peer "
    "11.214.147.122<39138> with error 12, opcode 0, len 0, vendor err 129",
    # NVIDIA/nccl#795: the loss of a peer that surfaces as an internal error
    NCCL + "internal error" + VERSION + "ncclInternalError: Internal check failed.\nLast error:\nNet : "
    "Connection closed by remote peer",
    # NVIDIA/nccl#1235, of three nodes
    "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-ib.cluster<51159>",
    SYSTEM + "socketStartConnect: Connect to 10.1.2.3<41027> failed : Software caused connection abort",
    # hiyouga/LlamaFactory#7396
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
    "NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
    "NCCL communicator was aborted on rank 1.",
    # RVC-Project#1882, CGCL-codes/pFedSD#3
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:10895",
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer",
    "[enforce fail at pair.cc:553] Connection closed by peer [10.1.2.3]:4242",
]
HARDWARE = [
    # huggingface/accelerate#1192, verl-project/verl#407, NVIDIA/semantic-segmentation#33
    "CUDA error: uncorrectable ECC error encountered" + ASYNC,
    "cuda runtime error (39) : uncorrectable ECC error encountered at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:265",
    "CUDA error: unspecified launch failure" + ASYNC,
    CUDA + "Cuda failure 719 'unspecified launch failure'",
    # wilicc/gpu-burn#1, NVIDIA/NVSentinel#155, leptonai/gpud#1174
    "[74889.644138] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
    "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
    "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)",
    # NVIDIA/gpu-operator#1146, NVIDIA/nvidia-docker#849
    "NVRM: Xid (PCI:0000:07:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected "
    "on GPU in the framebuffer at physAddr 0x7fdd60000 partition 4, subpartition 1.",
    # akash-network/support#244: beside Xids 31 and 43 of programs on the same machine, below
    "NVRM: Xid (PCI:0000:00:08): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No",
    # NVIDIA/open-gpu-kernel-modules#1150: 45 alone is a program that was ended
    "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
    # JosephKJ/OWOD#81, haotian-liu/LLaVA#1466
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU",
    "Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error",
]
MEMORY = [
    # FoundationVision/GenerateU#10, pp00704831/Stripformer-ECCV-2022-#21: torch 2 and torch 1
    "CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty of 14.75 GiB of which 235.06 MiB is free. "
    "Process 20398 has 14.52 GiB memory in use. Of the allocated memory 14.06 GiB is allocated by PyTorch, and 330.42 MiB is "
    "reserved by PyTorch but unallocated.",
    "CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB already allocated; 1.40 GiB free; "
    "5.28 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
    "fragmentation.",
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.11 GiB is free.",
    "CUDA error: out of memory" + ASYNC,
    # QwenLM/Qwen3#873, PKU-YuanGroup/Open-Sora-Plan#386
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    CUDA + "Cuda failure 2 'out of memory'",
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 49152000000 "
    "bytes. Error code 12 (Cannot allocate memory)",
]
PROGRAM = [
    # verl-project/verl#161, pytorch/torchtitan#1224
    NCCL + "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nncclInvalidUsage: This usually reflects "
    "invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
    NCCL
    + "invalid argument (run with NCCL_DEBUG=WARN for details)"
    + VERSION
    + "ncclInvalidArgument: Invalid value for an argument.",
    CUDA + "Cuda failure 101 'invalid device ordinal'",
    # NVIDIA/nccl#1410, pytorch/pytorch#170045
    CUDA + "Cuda failure 1 'invalid argument'",
    CUDA + "Cuda failure 999 'unknown error'",
    SYSTEM + "Error while creating shared memory segment /dev/shm/nccl-zTYolS (size 5967872)",
    "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    "my_loss needs the NCCL backend",
    "Distributed package doesn't have NCCL built in",
    "CUDA error: an illegal memory access was encountered" + ASYNC,
    "CUDA error: device-side assert triggered" + ASYNC,
    "CUDA error: no kernel image is available for execution on the device",
    "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)",
    "could not open the web socket of my tracker",
    # leptonai/gpud#46
    "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): "
    "Illegal Instruction Parameter",
    "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT",
    "NVRM: Xid (PCI:0000:01:00): 31, Ch 00000003, engmask 00000101, intr 10000000",
    # akash-network/support#244
    "NVRM: Xid (PCI:0000:00:05): 43, pid=1045242, name=pt_main_thread, Ch 00000008",
    "NVRM: Xid (PCI:0000:00:07): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
]
TABLE = [(kind, text) for kind, texts in zip(Fault, (PEER, HARDWARE, MEMORY, PROGRAM), strict=True) for text in texts]


@pytest.mark.parametrize(("kind", "text"), TABLE)
def test_the_kind_of_a_text(kind: Fault, text: str) -> None:
    assert fault_of(text) is kind


@pytest.mark.parametrize(("kind", "text"), TABLE)
def test_only_the_loss_of_a_peer_is_met_again(kind: Fault, text: str) -> None:
    """In a step or a collective of ours, and anywhere in a program: anything else would loop with exit code 75."""
    error = (dist.DistBackendError if text.startswith("NCCL error") else RuntimeError)(text)
    assert is_loss(error) is (kind is Fault.PEER)
    with pytest.raises(PeerLostError if kind is Fault.PEER else type(error)), noticing_loss():
        raise error


@pytest.mark.parametrize(("kind", "text"), TABLE)
def test_only_the_loss_of_a_peer_is_asked_for_by_the_launcher(kind: Fault, text: str) -> None:
    assert Failure(code=1, sentence=text).is_program is (kind is not Fault.PEER)
    assert Failure(code=1, sentence=text).is_hardware is (kind is Fault.HARDWARE)


def test_errors_of_torchs_network_and_store_are_always_a_peers() -> None:
    for error in (dist.DistNetworkError("failed to recv, got 0 bytes"), dist.DistStoreError("wait timeout after 5000ms")):
        assert is_loss(error)
    assert not is_loss(ValueError("Connection reset by peer"))
