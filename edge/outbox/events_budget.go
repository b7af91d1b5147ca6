package outbox

import (
	"maps"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// These values are the same as in the event correlator of client-go. A kubelet uses that correlator.
const (
	budgetBurst  = 25              // number of events with the same budgetKey that are sent at once
	budgetRefill = 5 * time.Minute // interval at which one more event is permitted

	// maxBudgets is the maximum number of budgets. When it is reached, unused budgets are removed. At most maxEvents budgets are in use, so
	// at least half of them can be removed.
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

// removeBudgets removes the unused budgets if there are maxBudgets budgets. A budget is unused if it is full, or if its object has no event
// of its type in memory. The caller must hold mu.
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
