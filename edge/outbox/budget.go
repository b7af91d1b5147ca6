package outbox

import (
	"maps"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// The same values as in client-go's event correlator, which a kubelet uses.
const (
	budgetBurst  = 25              // number of events with the same budgetKey that are sent at once
	budgetRefill = 5 * time.Minute // interval at which one more event is permitted

	// maxBudgets is the number of budgets at which unused budgets are removed. It is large enough, because at most maxEvents budgets are in
	// use.
	maxBudgets = 2 * maxEvents
)

// A budgetKey identifies the budget of one object for one type of event. Each type has a separate budget, so normal events do not use up
// the budget of the object's warnings.
type budgetKey struct {
	uid  types.UID
	kind string // v1.EventTypeNormal or v1.EventTypeWarning
}

// spendBudget takes one event from a budget. It returns false if the budget is used up. The caller must hold mu.
func (e *Events) spendBudget(key budgetKey, now time.Time) bool {
	b, ok := e.budgets[key]
	if !ok {
		e.removeBudgets(now)
		b = rate.NewLimiter(rate.Every(budgetRefill), budgetBurst)
		e.budgets[key] = b
	}
	return b.AllowN(now, 1)
}

// removeBudgets does nothing until there are maxBudgets budgets. Then it removes the budgets that are full, and those whose object has no
// events in memory. The caller must hold mu.
func (e *Events) removeBudgets(now time.Time) {
	if len(e.budgets) < maxBudgets {
		return
	}
	used := map[budgetKey]bool{}
	for _, r := range e.records {
		used[budgetKey{r.key.uid, r.key.kind}] = true
	}
	maps.DeleteFunc(e.budgets, func(key budgetKey, b *rate.Limiter) bool { return !used[key] || b.TokensAt(now) >= budgetBurst })
}
