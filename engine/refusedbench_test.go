package engine

import (
	"testing"
	"time"
)

// BenchmarkRefusedList is Choke on a known key with and without the list of the keys that are
// refused most, when so many have been refused that most are not in the sample.
func BenchmarkRefusedList(b *testing.B) {
	for _, of := range []struct {
		name string
		off  bool
	}{{"list", false}, {"none", true}} {
		e := open[string](b, Config{Policy: funnel(1<<40, 1<<20, time.Second), NoRefusedKeys: of.off})
		e.Take("refused", 1<<40)
		e.Choke("admitted")
		settled(b, e)
		for range 6_000_000 {
			e.Choke("refused")
		}
		for _, key := range []string{"admitted", "refused"} {
			b.Run(key+"/"+of.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					e.Choke(key)
				}
			})
		}
	}
}
