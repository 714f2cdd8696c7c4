"""The one style of every page: light and dark, on a phone, a desk and paper. No font and no script from anywhere."""

CSS = """
:root{color-scheme:light dark;--page:#fff;--ink:#1a1d21;--soft:#5b6470;--line:#d9dde3;--box:#f5f6f8;--good:#157a3e;
--bad:#b3261e;--quiet:#7b8490;--c0:#1f5fbf;--c1:#c25e00;--c2:#7a3fb0;--c3:#00808a;--c4:#a8306f;--c5:#6b7a00}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--ink:#e6e8eb;--soft:#9aa4b1;--line:#333a43;--box:#1c2127;
--good:#4cc38a;--bad:#ff8a80;--quiet:#8a94a1;--c0:#74a9ff;--c1:#ffab5c;--c2:#c79bf2;--c3:#4fd1d9;--c4:#f48fbf;--c5:#c3d64a}}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);background:var(--page);
max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:anywhere}
header{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start;border-bottom:1px solid var(--line);
padding-bottom:1rem;margin-bottom:1.5rem}
header>div{flex:1 1 20rem}header>img{width:11rem;border-radius:.5rem;border:1px solid var(--line)}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .6rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.6rem 0}
.badge{display:inline-block;padding:.25rem .8rem;border-radius:1rem;font-weight:600;border:1.5px solid;color:var(--soft)}
.badge.good,.badge.bad{color:var(--page);border:0}.badge.good{background:var(--good)}.badge.bad{background:var(--bad)}
.good{color:var(--good)}.bad{color:var(--bad)}.quiet{color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .9rem;font-size:.85rem;color:var(--soft);margin:.9rem 0 0}
dt{font-weight:600}dd{margin:0}code,pre,.next{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88em}
.next{background:var(--box);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .9rem;margin:1.5rem 0}
.note{border-left:3px solid var(--c0);background:var(--box);padding:.4rem .8rem}.note.warning{border-color:var(--bad)}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;min-width:100%;font-size:.92rem}
th,td{padding:.35rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:normal}
th{font-size:.82rem;color:var(--soft);font-weight:600;white-space:nowrap}td{min-width:3rem}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.strong{font-weight:600}
.mark{font-weight:700;white-space:nowrap}.evidence td{border-bottom:1px solid var(--line);padding-top:0;color:var(--soft);font-size:.85rem}
.asked td{border-bottom:0}
figure{margin:.5rem 0 1.2rem}figcaption{color:var(--soft);font-size:.87rem;margin-top:.3rem}
.films{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,100%),1fr));gap:1rem}
.films figure{margin:0}.films img{width:100%;border-radius:.4rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.85rem;margin:.3rem 0 .5rem;padding:0;list-style:none}
.legend li{display:flex;align-items:center;gap:.4rem}.legend svg{width:1.8rem;height:.9rem;flex:none}
.plot{display:grid;grid-template-columns:auto 1fr;gap:.2rem .5rem;font-size:.8rem;color:var(--soft)}
.plot>svg{width:100%;height:15rem;display:block;overflow:hidden;border:1px solid var(--line);border-radius:.2rem;background:var(--box)}
.ys{position:relative;min-width:2.6rem}.ys span{position:absolute;right:0;transform:translateY(50%);white-space:nowrap}
.rows{display:flex;flex-direction:column;max-width:9.5rem}.rows span{flex:1 1 0;display:flex;align-items:center;justify-content:flex-end;
text-align:right;line-height:1.15;color:var(--ink)}
.xs{position:relative;height:1.2rem;grid-column:2}.xs span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.xs span.first{transform:none}.xs span.last{transform:translateX(-100%)}
.plot.wide{min-width:37rem}.plot.wide .ys{min-width:4.5rem}.plot.wide .ys span{white-space:normal;text-align:right}
.named{position:relative}.named>svg{width:100%;display:block;overflow:hidden;border:1px solid var(--line);border-radius:.2rem;background:var(--box)}
.named span{position:absolute;transform:translateY(-50%);padding-left:.45rem;white-space:nowrap;line-height:1.1}
.ylabel{grid-column:1/-1;color:var(--soft)}.xlabel{grid-column:2;text-align:center}
path,line{vector-effect:non-scaling-stroke;fill:none;stroke:currentColor}path.band{stroke:none;fill:currentColor;opacity:.16}
.grid{stroke:var(--line);stroke-width:1}.rule{stroke:var(--quiet);stroke-width:1.2;stroke-dasharray:3 4}
.l{stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:7 5}.dot{stroke-width:7;stroke-linecap:round}
.small{stroke-width:4.5;stroke-linecap:round}.bar{stroke-width:11}.ci{stroke-width:5;opacity:.45}.tick{stroke-width:2.5}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
svg .good,li .good{color:var(--good)}svg .bad,li .bad{color:var(--bad)}svg .quiet,li .quiet{color:var(--quiet)}
details{margin:.5rem 0;font-size:.92rem}summary{cursor:pointer;color:var(--soft)}pre{overflow-x:auto;background:var(--box);padding:.8rem;border-radius:.4rem}
@media (max-width:40rem){body{padding:1rem .8rem 3rem}h1{font-size:1.25rem}.plot>svg{height:12rem}.rows{max-width:6.5rem}
th,td{padding:.3rem .4rem}td{min-width:0}th{white-space:normal;vertical-align:bottom}table{font-size:.85rem}.mark span{display:none}.num{font-size:.78rem;padding-left:.2rem;white-space:normal}.mark,.evidence td:first-child{padding:.3rem 0}header>img{width:100%;max-width:16rem}}
@media print{:root{--page:#fff;--ink:#000;--soft:#444;--line:#bbb;--box:#fff;--good:#157a3e;--bad:#b3261e;--quiet:#777;
--c0:#1f5fbf;--c1:#c25e00;--c2:#7a3fb0;--c3:#00808a;--c4:#a8306f;--c5:#6b7a00;color-scheme:light}
body{max-width:none;padding:0;font-size:11pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}
figure,tr,header,.note{break-inside:avoid}h2{break-after:avoid}details{display:none}.scroll{overflow:visible}}
"""
