package twin

import "encoding/json"

// Restored returns the record for a store that was restored from a backup. The record of the machine before may be empty. The new record
// has no marks, so it fits each machine.
func Restored(before, node string) (string, error) {
	var r record
	if json.Unmarshal([]byte(before), &r) != nil || r.Node != node { // then the Lease says which term was the last
		r = record{}
	}
	data, err := json.Marshal(record{Node: node, Term: r.Term, Restored: true})
	return string(data), err
}
