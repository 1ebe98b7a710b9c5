"""The style of the HTML report: light and dark by the reader's choice, colours that the colour-blind tell apart, and print.

The four states of a core and the marks are of the palette of Okabe and Ito (2008), which keeps its differences for
protanopes, deuteranopes and tritanopes; shapes and words say the same again.
"""

_LIGHT = """\
--paper:#ffffff;--ink:#1b2330;--dim:#5c6675;--line:#d7dce3;--soft:#f4f6f9;--link:#1f5fa8;
--critical:#b3261e;--warning:#9a5b00;--good:#1d6f42;--info:#2b6ca3;--focus:#f0b400;
--system:#d55e00;--softirq:#0072b2;--user:#6fc7a6;--steal:#cc79a7;--late:#b3261e;--zombies:#d55e00;--live:#0072b2;
--f-kernel:#f2a463;--f-user:#cfd67a;--f-python:#8fb8e8;--f-jit:#86cfc6;--f-idle:#e3e6ea;--f-other:#c9d1dc;--f-ink:#1b2330;
--more1:#fbe0c9;--more2:#f5b98a;--more3:#e98a4b;--more4:#d55e00;--less1:#d5e4f1;--less2:#a5c8e4;--less3:#6aa5d2;--less4:#3a85bf;
--same:#eceff3;"""
_DARK = """\
--paper:#12161d;--ink:#e4e8ee;--dim:#9aa5b4;--line:#2d3541;--soft:#1a2029;--link:#7fb5f0;
--critical:#ff8a80;--warning:#f3b65a;--good:#6ed19a;--info:#7fb5f0;--focus:#e0b030;
--system:#f07f2e;--softirq:#4aa3df;--user:#3f9a7a;--steal:#d890b5;--late:#ff8a80;--zombies:#f07f2e;--live:#4aa3df;
--f-kernel:#b8692a;--f-user:#737a2c;--f-python:#3d648f;--f-jit:#2f766e;--f-idle:#2a313b;--f-other:#3b4656;--f-ink:#f2f4f7;
--more1:#43301f;--more2:#6d431f;--more3:#a0581c;--more4:#d06a12;--less1:#1d2f40;--less2:#244a6b;--less3:#2b679a;--less4:#3a85bf;
--same:#252c36;"""

_CHANGES = "".join(
    f".flame .{name} rect,.key.{name}{{fill:var(--{name})}}"
    for name in (*(f"{way}{level}" for way in ("more", "less") for level in range(1, 5)), "same")
)
_KINDS = "".join(f".key.f-{name}{{fill:var(--f-{name})}}" for name in ("kernel", "user", "python", "jit", "idle"))

STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
main{{max-width:1240px;margin:0 auto;padding:28px 20px 60px}}
h1{{font-size:26px;line-height:1.3;margin:6px 0 8px}}
h2{{font-size:18px;margin:34px 0 10px;padding-bottom:4px;border-bottom:1px solid var(--line)}}
h3{{font-size:15px;margin:18px 0 6px}}
p,ul,ol{{margin:6px 0}}
.meta,.note{{color:var(--dim)}}
.note{{font-size:13px}}
.badge{{display:inline-block;padding:2px 10px;border-radius:4px;border:1.5px solid currentColor;
font-weight:700;letter-spacing:.04em}}
.badge.critical{{color:var(--critical)}}.badge.warning,.badge.unknown{{color:var(--warning)}}.badge.healthy{{color:var(--good)}}
.sure{{margin-left:12px;color:var(--dim)}}
code,pre,.mono{{font:13px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
pre{{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:10px 12px;overflow-x:auto;margin:8px 0}}
table{{border-collapse:collapse;width:100%;margin:6px 0 14px;font-size:14px}}
th,td{{text-align:left;vertical-align:top;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);overflow-wrap:break-word}}
th{{color:var(--dim);font-weight:600}}td.n,td.mono{{overflow-wrap:anywhere}}
td.n{{font-variant-numeric:tabular-nums}}td.t{{white-space:nowrap;overflow-wrap:normal}}
td.s{{color:var(--dim)}}
summary{{cursor:pointer;margin:8px 0 4px;font-weight:600}}
.do li{{margin:5px 0}}.do .not{{list-style-type:"✕  "}}.cost{{color:var(--dim)}}
svg{{display:block;width:100%;height:auto;margin:8px 0;background:var(--paper)}}
svg text{{font:12.5px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}}
.box{{fill:var(--soft);stroke:var(--line)}}.edge.critical{{fill:var(--critical)}}.edge.warning{{fill:var(--warning)}}
.edge.info{{fill:var(--info)}}.chain .what{{font-size:16px;font-weight:600}}
.chain .numbers{{font-size:14px;text-anchor:end}}.chain .because{{font-size:13.5px;fill:var(--dim)}}
.arrow{{stroke:var(--dim);stroke-width:2;fill:none}}.head{{fill:var(--dim)}}
.lane{{text-anchor:end}}.told,.tick{{fill:var(--dim)!important}}.tick{{text-anchor:middle}}.grid{{stroke:var(--line);fill:none}}
.empty{{fill:var(--soft)}}.unknown{{fill:var(--line)}}.focus{{fill:var(--focus);fill-opacity:.16;stroke:var(--focus);stroke-opacity:.6}}
.system{{fill:var(--system)}}.softirq{{fill:var(--softirq)}}.user{{fill:var(--user)}}.steal{{fill:var(--steal)}}
.late{{fill:var(--late)}}.count{{fill:none;stroke-width:2}}.count.zombies{{stroke:var(--zombies)}}
.count.live{{stroke:var(--live);stroke-dasharray:5 3}}.restart{{stroke:var(--ink);stroke-width:2}}
.flag{{stroke:var(--paper);stroke-width:1}}.flag.critical{{fill:var(--critical)}}.flag.warning{{fill:var(--warning)}}
.flag.info{{fill:var(--info)}}
.legend{{font-size:13px;color:var(--dim);display:flex;gap:18px;flex-wrap:wrap}}
.legend svg{{display:inline-block;width:13px;height:13px;margin:0 5px -1px 0}}
.flame g{{cursor:pointer}}
.flame text{{font:11px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--f-ink);pointer-events:none}}
.flame g:hover rect{{stroke:var(--ink);stroke-width:1}}.flame rect{{fill:var(--f-other)}}
.flame .kernel rect{{fill:var(--f-kernel)}}.flame .user rect{{fill:var(--f-user)}}.flame .python rect{{fill:var(--f-python)}}
.flame .jit rect{{fill:var(--f-jit)}}.flame .idle rect{{fill:var(--f-idle)}}
{_CHANGES}
{_KINDS}
@media print{{
:root{{{_LIGHT}}}
body{{font-size:12px}}main{{max-width:none;padding:0}}h2{{break-after:avoid}}svg,table,pre{{break-inside:avoid}}
svg,.key{{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
}}
"""
