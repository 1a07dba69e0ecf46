package limitfile

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Shares returns shares in process with the limit of that name, which has "share" settings in the file. Guarantees and
// ceilings follow the file, as by SetGuarantee and SetCeiling of engine.Shares. A guarantee may have to wait
// while another tenant still owes the units that it leaves. [File.Health] then names the setting, and each look
// tries again. A change of the limit itself or of "reserved" comes into force at the next start. A setting that is
// gone holds until the tenant's entry leaves. [File.Close] closes the shares.
//
// config has the settings that engine.SharesConfig takes. Its Name is the limit's by default. Shares returns an
// error if the file has no such limit, if the limit has no shares or has a limiter already, or from
// engine.NewShares.
func Shares(file *File, name string, config ...engine.Config) (*engine.Shares[string], error) {
	member := &sharesMember{file: file}
	if len(config) > 0 {
		member.config = config[len(config)-1]
	}
	if err := file.add(name, member); err != nil {
		return nil, err
	}
	return member.shares, nil
}

// sharesMember is the member of a File for shares. File.changing guards all fields except next.
type sharesMember struct {
	file   *File
	config engine.Config
	shares *engine.Shares[string]
	// inForce has the texts of the guarantees and ceilings in force, by setting.
	inForce map[string]string
	// next is the limit in the file. A tenant that gets an entry has its guarantee and ceiling from it.
	next atomic.Pointer[Limit]
}

// prepare implements member.
func (m *sharesMember) prepare(next *Limit) (update, error) {
	discard := func() error { return nil }
	if !next.isShared() {
		return update{discard: discard}, next.fault("", "it has no shares: a setting such as \"share gold: funnel 100, 10/s\" is required, as a program shares it")
	}
	if m.shares != nil {
		return update{commit: func(context.Context) (map[string]int, error) {
			m.next.Store(next)
			return nil, next.Share(m.shares, m.inForce)
		}, discard: discard}, nil
	}
	m.next.Store(next)
	config, inForce := next.SharesConfig(m.next.Load)
	m.config.Name = cmp.Or(m.config.Name, next.Name)
	config.Config = m.config
	shares, err := next.newShares(config)
	if err != nil {
		return update{discard: discard}, err
	}
	m.shares, m.inForce = shares, inForce
	return update{
		commit:  func(context.Context) (map[string]int, error) { return nil, m.file.own(shares) },
		discard: shares.Close,
	}, nil
}

// Share gives shares the guarantees and ceilings of the limit, for other shares than those of the function Shares. inForce
// has the texts of those in force by setting, such as "share gold", and is updated. Those that are gone come
// first: they leave room. The error joins a *[Fault] for each that could not follow, which [Compare] then knows: call
// Share again.
func (l *Limit) Share(
	shares interface {
		SetGuarantee(tenant string, guarantee policy.Policy) error
		SetCeiling(tenant string, ceiling policy.Policy) error
	}, inForce map[string]string,
) (err error) {
	held := map[string]string{}
	set := func(key string, limit policy.Policy) {
		text, put := "", shares.SetGuarantee
		if strings.HasPrefix(key, ceilingPrefix) {
			put = shares.SetCeiling
		}
		if limit != nil {
			text = limit.String()
		}
		delete(held, key)
		if inForce[key] == text {
			return
		}
		if failed := put(nameIn(key), limit); failed != nil {
			held[key] = inForce[key]
			err = errors.Join(err, l.fault(key, "%w", fieldFault(failed)))
			return
		}
		inForce[key] = text
	}
	var kept error
	for key, text := range inForce {
		if l.settings[key].line == 0 && text != "" {
			set(key, nil)
		}
	}
	kept, err = err, nil
	// The second pass sets larger guarantees for which smaller ones have made room.
	for range 2 {
		err = nil
		for prefix, all := range l.byTenant() {
			for _, share := range all {
				set(prefix+share.Name, share.Policy)
			}
		}
	}
	l.held.put(held)
	return errors.Join(kept, err)
}
