// Makes n calls at once with each client, each with two retries, and prints the failures of each:
//   node herd.mjs URL n
import Anthropic from '@anthropic-ai/sdk'
import axios from 'axios'
import axiosRetry from 'axios-retry'
import got from 'got'
import OpenAI from 'openai'
import pRetry from 'p-retry'

const [url, n] = process.argv.slice(2)
const retries = 2
const messages = [{ role: 'user', content: 'Hello' }]
const fields = (client, i) => ({ 'X-Client': client, 'X-Call': String(i) })

const openai = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: retries })
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: retries })
const plain = axios.create()
axiosRetry(plain, { retries, retryCondition: error => error.response?.status === 429 })

// Clients as their documentation shows them. p-retry leaves the wait to its caller.
const clients = {
  'openai': headers => openai.chat.completions.create({ model: 'none', messages }, { headers }),
  '@anthropic-ai/sdk': headers => anthropic.messages.create({ model: 'none', max_tokens: 1, messages }, { headers }),
  'got': headers => got(url, { headers, retry: { limit: retries } }),
  'axios-retry': headers => plain.get(url, { headers }),
  'p-retry': headers => {
    let told = 0
    return pRetry(async () => {
      await new Promise(done => setTimeout(done, told * 1000))
      const response = await fetch(url, { headers })
      told = Number(response.headers.get('Retry-After'))
      if (!response.ok) throw new Error(String(response.status))
    }, { retries, minTimeout: 0 })
  },
}

// The first call of a client compiles it, which would delay the others.
await Promise.all(Object.entries(clients).map(([client, call]) => call(fields('first ' + client, 0))))
const failures = {}
await Promise.all(Object.entries(clients).flatMap(([client, call]) =>
  Array.from({ length: Number(n) }, async (_, i) => {
    failures[client] ??= 0
    try {
      await call(fields(client, i))
    } catch (error) {
      if (!/429/.test(error.message)) throw error
      failures[client]++
    }
  })))
console.log(JSON.stringify(failures))
