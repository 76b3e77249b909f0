// check.mjs FOLDER: reads objects of Kubernetes, as JSON, from stdin. Each must be of its type: members that there are, of the
// right kind, and none that is not known (by the compiler), with values in their formats (by the package). Their types are
// those of kubernetes-models; what TypeScript reads is written to FOLDER.
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const folder = process.argv[2];
const require = createRequire(path.join(folder, 'package.json'));
const objects = JSON.parse(fs.readFileSync(0, 'utf8'));

const source = objects.map((object, number) => {
  const module = `kubernetes-models/${object.apiVersion}/${object.kind}`;
  new (require(module)[object.kind])(object).validate();
  return `import {I${object.kind} as T${number}} from '${module}';
export const o${number}: T${number} = ${JSON.stringify(object, null, 2)};\n`;
}).join('');
fs.writeFileSync(path.join(folder, 'objects.ts'), source);
try {
  execFileSync(process.execPath, [require.resolve('typescript/bin/tsc'), '--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext',
                                  'objects.ts'], {cwd: folder, encoding: 'utf8'});
} catch (error) {
  console.error(error.stdout);
  process.exit(1);
}
