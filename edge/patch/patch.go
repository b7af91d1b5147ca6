package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// equalStatus compares two statuses before they are encoded, because most statuses have not changed. It compares times in seconds, which
// is their precision in JSON.
var equalStatus = func() func(a, b any) bool {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }); err != nil {
		panic(err)
	}
	return e.DeepEqual
}()

// mergedLists contains the names of lists that the API server merges by a key, although all elements belong to the node. A patch must
// replace these lists.
var mergedLists = map[string]bool{"addresses": true, "podIPs": true, "hostIPs": true}

// conditionsList is the name of a list that also has elements of other programs. A patch contains only the changed elements. They are
// merged by the field conditionKey.
const conditionsList, conditionKey = "conditions", "type"

// Status returns the patch from one status to another, or nil if they are equal. If the UID is not empty, the patch applies only to the
// object with this UID. For another object with the same name, the server answers with a conflict.
func Status(uid types.UID, before, after any) ([]byte, error) {
	if equalStatus(before, after) {
		return nil, nil
	}
	old, err := jsonFields(before)
	if err != nil {
		return nil, err
	}
	now, err := jsonFields(after)
	if err != nil {
		return nil, err
	}
	changed := map[string]any{}
	for name := range mergeMaps(old, now) {
		if reflect.DeepEqual(old[name], now[name]) {
			continue
		}
		changed[name] = fieldPatch(name, old[name], now[name])
	}
	if len(changed) == 0 {
		return nil, nil
	}
	whole := map[string]any{"status": changed}
	if uid != "" {
		whole["metadata"] = map[string]any{"uid": uid}
	}
	data, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("encode a status patch: %w", err)
	}
	return data, nil
}

// jsonFields returns the JSON fields of an object, without null values.
func jsonFields(v any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	m := map[string]any{}
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("decode a status: %w", err)
	}
	removeNulls(m)
	return m, nil
}

// removeNulls removes null values, because a null value in a patch removes the field.
func removeNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, x any) bool { return x == nil })
		for _, x := range v {
			removeNulls(x)
		}
	case []any:
		for _, x := range v {
			removeNulls(x)
		}
	}
}

func mergeMaps(a, b map[string]any) map[string]any {
	list := maps.Clone(a)
	maps.Copy(list, b)
	return list
}

// fieldPatch returns the patch of one field.
func fieldPatch(name string, old, now any) any {
	switch now := now.(type) {
	case []any:
		if name == conditionsList {
			typed, _ := old.([]any)
			return changedConditions(typed, now)
		}
		if mergedLists[name] {
			return append(slices.Clone(now), map[string]any{"$patch": "replace"})
		}
	case map[string]any:
		typed, ok := old.(map[string]any)
		if !ok {
			return now
		}
		out := map[string]any{}
		for key := range mergeMaps(typed, now) {
			if !reflect.DeepEqual(typed[key], now[key]) {
				out[key] = fieldPatch("", typed[key], now[key])
			}
		}
		return out
	case nil:
		switch typed := old.(type) {
		case []any:
			if name == conditionsList {
				return changedConditions(typed, nil)
			}
			if mergedLists[name] {
				return []any{map[string]any{"$patch": "replace"}}
			}
		}
	}
	return now
}

func changedConditions(old, now []any) []any {
	out := []any{}
	for _, c := range now {
		was := find(old, c)
		if reflect.DeepEqual(was, c) {
			continue
		}
		c := maps.Clone(c.(map[string]any))
		if was, ok := was.(map[string]any); ok {
			for key := range was {
				if _, still := c[key]; !still {
					c[key] = nil
				}
			}
			maps.DeleteFunc(c, func(key string, v any) bool { return key != conditionKey && v != nil && reflect.DeepEqual(v, was[key]) })
		}
		out = append(out, c)
	}
	for _, c := range old {
		if find(now, c) == nil {
			out = append(out, map[string]any{"$patch": "delete", conditionKey: c.(map[string]any)[conditionKey]})
		}
	}
	return out
}

func find(list []any, like any) any {
	for _, c := range list {
		if c.(map[string]any)[conditionKey] == like.(map[string]any)[conditionKey] {
			return c
		}
	}
	return nil
}
