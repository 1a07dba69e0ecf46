package rpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// An adapter fills in a Call, asks Begin, and answers by the verdict.
func Example() {
	byAddr, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.FixedWindow(2, time.Minute))})
	if err != nil {
		log.Fatal(err)
	}
	defer byAddr.Close()
	limits := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr}))
	for range 3 {
		call := &rpclimit.Call{
			Context:   context.Background(),
			Procedure: "/shop.Orders/Place",
			Peer:      rpclimit.ParsePeer("192.0.2.1:4711"),
		}
		verdict, session := limits.Begin(call)
		if verdict.Refused() {
			_, promised := verdict.Retry()
			fmt.Println(verdict.Code(), verdict.Limit, promised)
			continue
		}
		fmt.Println("served")
		session.End(rpclimit.Served{Code: rpclimit.CodeOK})
	}
	// Output:
	// served
	// served
	// resource_exhausted address true
}
