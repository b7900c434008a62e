"use strict";
// Was it safe? The first thing on the page, in words, with the numbers that say so.

T.summary = function (run) {
  const verdict = run.verdict, state = T.known(verdict.state);
  return T.el("section", {id: "summary"},
    T.el(`div.card.verdict.${state}`, {role: "status"},
      T.el("div.sign", {"aria-hidden": "true"}, T.STATES[state][0]),
      T.el("div", {}, T.el("strong", {}, verdict.headline), T.el("span.soft", {}, verdict.basis))),
    T.el("div.grid.cards", {style: {marginTop: "14px"}}, verdict.costs.map(costCard), rewardCard(verdict), trainingCard(run)));

  function costCard(cost) {
    const share = cost.limit > 0 ? cost.value / cost.limit : null;
    const most = Math.max(cost.limit * 1.6, (cost.high ?? cost.value ?? 0) * 1.1) || 1;
    const at = (value) => `${100 * Math.max(0, Math.min(value / most, 1))}%`;
    return T.el(`div.card.${T.known(cost.state)}`, {"data-cost": cost.name},
      T.el("div.row.spread", {}, T.el("h3", {}, `Cost: ${cost.name}`), T.badge(cost.state)),
      T.el("p.soft", {}, cost.help || "mean cost per step"),
      T.el("div.gauge", {"aria-hidden": "true"},
        T.isNumber(cost.value) ? T.el("div.bar", {style: {width: at(cost.value)}}) : null,
        T.isNumber(cost.low) ? T.el("div.range", {style: {left: at(cost.low), width: `calc(${at(cost.high)} - ${at(cost.low)})`}}) : null,
        T.el("div.limit", {"data-label": `limit ${T.quantity(cost.limit, cost.unit)}`, style: {left: at(cost.limit)}})),
      T.el("div.number", {}, T.quantity(cost.value, cost.unit), T.isShare(cost.unit) ? null : T.el("small", {}, ` ${cost.unit}`)),
      interval(cost, cost.unit),
      T.isNumber(share) ? T.el("p.soft", {}, share <= 1 ? `uses ${T.percent(share)} of what its limit allows`
        : `${T.number(share, 2)} times what its limit allows`) : null);
  }

  function interval(part, unit) {
    return T.isNumber(part.low) ? T.el("p.soft", {}, `between ${T.quantity(part.low, unit)} and ${T.quantity(part.high, unit)}`) : null;
  }

  function rewardCard({reward}) {
    const best = reward.best;
    const beside = best ? `best scripted policy${best.kept ? " within the limits" : ""}: ${best.name}, ${T.number(best.reward)}` : "per step";
    return T.el("div.card", {}, T.el("div.row.spread", {}, T.el("h3", {}, "Reward per step"),
      T.el("small", {}, reward.source === "training" ? "in training" : "more is better")),
      T.el("p.soft", {style: {marginBottom: "18px"}}, "what the agents earn together"),
      T.el("div.number", {}, T.number(reward.value)), interval(reward), T.el("p.soft", {}, beside));
  }

  function trainingCard({training}) {
    if (!training.length) return null;
    return T.el("div.card", {}, T.el("h3", {}, "While it was learning"),
      T.el("p.soft", {style: {marginBottom: "8px"}}, "what all of training cost, of what the limits allow over as many steps"),
      T.el("div.bars", {}, training.flatMap((part) => {
        const kept = part.share === null || part.share <= 1;
        return [T.el("span", {}, part.name),
          T.el("span.track", {}, T.el("i", {style: {left: 0, width: `${100 * Math.min(part.share ?? 0, 1)}%`,
            background: T.css(kept ? "--within" : "--over")}})),
          T.el("span", {}, `${T.percent(part.share)}${kept ? "" : " ✕"}`)];
      })),
      T.el("p.soft", {style: {marginTop: "8px"}}, training.map((part) =>
        `${part.name} above its limit in ${T.percent(part.rounds_over)} of the rounds`).join("; ")));
  }
};
