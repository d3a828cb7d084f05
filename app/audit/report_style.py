"""The style of a report's page. It is in the page by its hash, so that no other is allowed."""

STYLE = """
:root{--page:#fff;--text:#1c2128;--soft:#57606a;--line:#d5dae0;--back:#f5f7f9;--good:#14662f;--good-back:#e3f4e7;
--bad:#a31515;--bad-back:#fde8e8;--one:#1d5fa8;--two:#b45309;--three:#6b7280;--spent:#1d5fa8;--reserved:#b9d4f0}
@media (prefers-color-scheme:dark){:root{--page:#14181d;--text:#e4e8ec;--soft:#9aa5b1;--line:#333b45;--back:#1d2329;
--good:#7bd694;--good-back:#14301d;--bad:#ff9b93;--bad-back:#43191a;--one:#74b3f5;--two:#f0a95b;--three:#aab2bd;
--spent:#4c93dd;--reserved:#24466b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem 4rem;max-width:66rem;background:var(--page);color:var(--text);
overflow-wrap:break-word;font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;margin:3rem 0 .8rem;padding-top:.9rem;border-top:2px solid var(--line);overflow-wrap:anywhere}
h3{font-size:1.08rem;margin:1.9rem 0 .5rem}
h4{font-size:1rem;margin:0 0 .6rem;overflow-wrap:anywhere}
h5{font-size:.95rem;margin:1rem 0 .3rem}
h4 code{color:var(--soft);font-weight:400}
p,ol,ul{max-width:48rem;margin:.5rem 0}
li{margin:.35rem 0}
a{color:var(--one)}
.verdict{padding:.8rem 1rem;border-left:.4rem solid;border-radius:.3rem;margin:0 0 1rem;max-width:none}
.verdict p{margin:0}
.verdict.holds{background:var(--good-back);border-color:var(--good)}
.verdict.wrong{background:var(--bad-back);border-color:var(--bad)}
.verdict strong{font-size:1.15rem}
.holds strong,td .holds,dd .holds,.mark.holds{color:var(--good)}
.wrong strong,td .wrong,dd .wrong,.mark.wrong{color:var(--bad)}
td .wrong,dd .wrong{font-weight:700}
td>span{white-space:nowrap}
.open{color:var(--soft)}
.mark{display:inline-block;width:1.4rem;font-weight:700}
.scroll{overflow-x:auto;margin:.4rem 0 .8rem}
.scroll:focus-visible{outline:2px solid var(--one)}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;width:100%}
th,td{text-align:left;vertical-align:top;padding:.34rem .7rem .34rem 0;border-bottom:1px solid var(--line);
unicode-bidi:isolate}
thead th{color:var(--soft);font-weight:600;border-bottom-width:2px}
tbody th{font-weight:600;white-space:nowrap}
th.number,td.number{text-align:right;white-space:nowrap}
td.long{min-width:22rem;width:60%}
td>code,td>a>code,td>time{white-space:nowrap}td.long code{white-space:normal}
th.number+th:not(.number),td.number+td:not(.number){padding-left:.4rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:.15rem 1.6rem;margin:.5rem 0}
dl div{border-bottom:1px solid var(--line);padding:.25rem 0;min-width:0}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums;unicode-bidi:isolate}
code,pre{font:.85em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere;
unicode-bidi:isolate}
pre{white-space:pre-wrap;background:var(--back);padding:.7rem;border-radius:.3rem;max-height:24rem;overflow:auto}
.name{unicode-bidi:isolate}
.session{background:var(--back);border:1px solid var(--line);border-radius:.4rem;padding:1rem;margin:1rem 0}
.session pre{background:var(--page)}
details{margin:.6rem 0}
summary{cursor:pointer;font-weight:600;font-size:.92rem;padding:.2rem 0}
figure{margin:.6rem 0}
figcaption{color:var(--soft);font-size:.85rem;max-width:48rem}
svg{display:block;width:100%;min-width:34rem;max-width:52rem;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--text)}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1;fill:none}
.limit{stroke:var(--bad);stroke-width:2;stroke-dasharray:6 4;fill:none}
.area{stroke:none}
.area.spent{fill:var(--spent)}
.area.reserved{fill:var(--reserved)}
.dots{fill:none;stroke-width:5;stroke-linecap:round}
.dots.one{stroke:var(--one)}
.dots.two{stroke:var(--two);stroke-linecap:square}
.dots.three{stroke:var(--three)}
footer{margin-top:3rem;color:var(--soft);font-size:.85rem}
@media (max-width:40rem){body{padding:1rem .8rem 3rem}.session{padding:.8rem}td.long{min-width:15rem}}
@media print{:root{--page:#fff;--text:#000;--soft:#444;--line:#bbb;--back:#fff;--good:#14662f;--good-back:#fff;
--bad:#a31515;--bad-back:#fff;--one:#1d5fa8;--two:#b45309;--three:#6b7280;--spent:#1d5fa8;--reserved:#b9d4f0}
body{max-width:none;padding:0;font-size:10pt}
table{font-size:7.5pt}td>code,td>a>code,td>time,td.number{white-space:normal;overflow-wrap:anywhere}td.long{min-width:0}
.scroll{overflow:visible}pre{max-height:none}
details::details-content{content-visibility:visible;block-size:auto}
h2,h3,h4{break-after:avoid}figure,tr,.verdict{break-inside:avoid}svg{min-width:0}
.area,.verdict{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
