package families

import (
	"errors"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Shares are the tenants of a limit, in this process or in Redis. In Redis the ceilings come from
// SharesConfig.Ceiling, so SetCeiling does nothing there.
type Shares interface {
	limits.Limiter[string]
	SetGuarantee(tenant string, guarantee policy.Policy) error
	SetCeiling(tenant string, ceiling policy.Policy) error
	Remote() bool
	Health() error
	Close() error
	// Counts returns the counters.
	Counts() engine.SharesStats
}

// NewShares returns shares, over the fleet if Redis keeps the keys. config.Config must have no
// other setting than Name.
func (s *Families) NewShares(config engine.SharesConfig[string]) (Shares, error) {
	if s.config.Fleet == nil {
		config.Config.MaxKeys = s.config.MaxKeys
		shares, err := engine.NewShares(config)
		return near{shares}, err
	}
	c := s.fleetConfig("shares:" + config.Config.Name)
	c.Tag = config.Config.Name
	shares, err := fleet.NewShares(fleet.SharesConfig{
		Config: c, Total: config.Total, Reserved: config.Reserved, Tenants: config.Tenants, Guarantee: config.Guarantee, Ceiling: config.Ceiling,
	})
	return far{shares}, err
}

// near implements Shares.
type near struct{ *engine.Shares[string] }

func (near) Remote() bool                 { return false }
func (near) Health() error                { return nil }
func (n near) Counts() engine.SharesStats { return n.Stats() }

// far implements Shares.
type far struct{ *fleet.Shares }

func (far) SetCeiling(string, policy.Policy) error { return nil }

func (f far) SetGuarantee(tenant string, guarantee policy.Policy) error {
	if guarantee == nil {
		return errors.New("with -redis the guarantee holds until all servers have started again")
	}
	return f.Shares.SetGuarantee(tenant, guarantee)
}

func (f far) Counts() engine.SharesStats { return f.Stats().SharesStats }
