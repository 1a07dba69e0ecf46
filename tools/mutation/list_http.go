package main

// The mechanisms of package httplimit.
var ofHTTP = []mutation{
	{
		name: "Charge gives back to the window of then", without: "who keeps requests open saves units up for later windows",
		file:  "httplimit/limit.go",
		old:   "	t.reserved.Keep(actual) // which",
		new:   "	t.owe(actual - all) // which",
		tests: "TestCharge",
	},
	{
		name: "Charge under several limits gives back to the windows of then", without: "who keeps requests open saves units up for later windows",
		file:  "httplimit/together.go",
		old:   "	if actual <= all {\n",
		new:   "	if actual == all {\n",
		tests: "TestCharge",
	},
	{
		name: "who waits stands in line first", without: "who comes late is served before those who wait",
		file:  "httplimit/limit.go",
		old:   "	case o.WaitUpTo > 0:\n",
		new:   "	case o.WaitUpTo > 0 && l.Limiter.Peek(key).Remaining < n:\n",
		tests: "TestLateArrivalsDoNotOvertake",
	},
	{
		name: "a turn that is not waited for is given back", without: "a client that leaves keeps its place in the queue",
		file:  "httplimit/limit.go",
		old:   "			reserved.Cancel()\n",
		new:   "",
		tests: "TestQueueDelays",
	},
	{
		name: "Shadow takes the turns that would be waited for", without: "it reports refusals of what would be delayed",
		file:  "httplimit/limit.go",
		old:   "	case l.mayDelay(key), o.Shadow && o.WaitUpTo > 0:\n",
		new:   "	case l.mayDelay(key):\n",
		tests: "TestShadowOfWaiting",
	},
	{
		name: "Shadow does not wait", without: "requests are delayed though nothing is to change",
		file:  "httplimit/wait.go",
		old:   "		v.Waited = turn\n		return true\n",
		new:   "		v.Waited = turn\n		return sleep(r.Context(), turn)\n",
		tests: "TestShadowOfWaiting",
	},
	{
		name: "a closed engine answers as it is configured", without: "closing an engine that admits refuses everybody",
		file:  "httplimit/wait.go",
		old:   "		reserved = l.Limiter.Reserve(key, n, 0) // as",
		new:   "		_ = l // as",
		tests: "TestClosedEngineAnswersAtOnce",
	},
	{
		name: "the tighter limit is told", without: "a client is told of the room of a limit that it does not come up against",
		file:  "httplimit/fields.go",
		old:   "		if v.Reason == Admitted && tighter(h[legacyLimit]",
		new:   "		if tighter(h[legacyLimit]",
		tests: "TestNestedLegacyFieldsTellTheTighterLimit",
	},
	{
		name: "the log has no secrets", without: "API keys stand in the log",
		file:  "httplimit/limit.go",
		old:   "	return hex.EncodeToString(sum[:6])\n",
		new:   "	_ = hex.EncodeToString(sum[:6])\n	return fmt.Sprint(key)\n",
		tests: "TestLog",
	},
}
