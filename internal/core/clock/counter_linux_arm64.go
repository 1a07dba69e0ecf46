package clock

// kernelsName is the name of the counter as a clock source of the kernel.
const kernelsName = "arch_sys_counter"

// invariant reports whether the counter runs at one rate in all states of the processor,
// which the architecture demands.
func invariant() bool { return true }
