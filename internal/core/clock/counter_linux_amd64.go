package clock

// kernelsName is the name of the counter as a clock source of the kernel.
const kernelsName = "tsc"

// cpuid returns what the CPUID instruction says about leaf.
//
//go:noescape
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

// invariant reports whether the counter runs at a fixed rate in all states of the processor.
func invariant() bool {
	const powerManagement, invariantCounter = 0x80000007, 1 << 8
	if most, _, _, _ := cpuid(0x80000000); most < powerManagement {
		return false
	}
	_, _, _, edx := cpuid(powerManagement)
	return edx&invariantCounter != 0
}
